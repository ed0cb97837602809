"""What is said of a wish before it holds."""

from types import TracebackType
from typing import Any, Self

import pytest

from protocol.types import TopicPartition
from replicator.progress import Progress
from replicator.settings import GROUPS_EXCLUDE, TOPICS_EXCLUDE, ClusterEnd, LinkSettings
from replicator.workers import asking
from replicator.workers.asking import no_longer_excluded
from replicator.workers.control import Desired, Scope, changed, settings_rows
from replicator.workers.report import Standing, WorkerReport

FILE = LinkSettings.model_validate(
    {
        "source": {"alias": "east", "bootstrap": "e:1"},
        "target": {"alias": "west", "bootstrap": "w:1"},
        "topics_exclude": [*TOPICS_EXCLUDE, "secret"],
    }
)


def said(before, after):
    return no_longer_excluded(FILE, before, changed(FILE, after))


def test_patterns_that_a_list_drops_are_named_those_of_the_defaults_too():
    assert said({}, {"groups_exclude": "batch,__.*"}) == [
        f"groups_exclude has no longer {', '.join(GROUPS_EXCLUDE[:2])}"
    ]
    assert said({}, {"topics_exclude": ",".join(TOPICS_EXCLUDE)}) == ["topics_exclude has no longer secret"]
    assert said({"groups_exclude": "batch"}, {}) == ["groups_exclude has no longer batch"]


def test_nothing_is_said_where_a_list_grows_or_what_held_before_was_wrong():
    assert said({}, {"groups_exclude": ",".join((*GROUPS_EXCLUDE, "batch"))}) == []
    assert said({"groups_exclude": "("}, {"rate_limit": "5"}) == []


@pytest.mark.parametrize("topic", ["orders/3", "orders.*", ""])
async def test_what_no_topic_can_be_called_is_not_paused(topic):
    """It was said to be paused, and workers could not read that record, which nobody could take away."""
    for ask in (asking.pause, asking.restart):
        with pytest.raises(asking.WronglyAsked, match="is no topic name"):
            await ask(FILE, Scope(topic), asking.wish())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rat_limit", "did you mean 'rate_limit'"),
        ("exactly_once", "cannot be changed"),
        ("topics", "at once"),
    ],
)
async def test_a_setting_is_unset_only_where_it_can_have_been_set(name, said):
    """Of a name with a slip it was said that it is as in the file again."""
    with pytest.raises(asking.WronglyAsked, match=said):
        await asking.set_values(FILE, {"topics": "orders"}, unset=(name,))


class Rows:
    """A progress topic that all stores share. `between` is written behind what the next one has read, `after`
    behind what it writes."""

    def __init__(self, *, between: dict[str, bytes | None], after: dict[str, bytes | None]) -> None:
        self.log: list[tuple[bytes, bytes | None]] = []
        self._between, self._after = between, after

    def store(self, *_: object) -> "Store":
        return Store(self)

    def write(self, rows: dict[str, bytes | None]) -> None:
        for some in (self._between, rows, self._after):
            self.log += [(key.encode(), value) for key, value in some.items()]
        self._between, self._after = {}, {}


class Store:
    def __init__(self, rows: Rows) -> None:
        self._rows, self._progress, self._read = rows, Progress(), 0

    async def load(self) -> Progress:
        return await self.refresh()

    async def refresh(self) -> Progress:
        self._progress.apply(self._rows.log[self._read :])
        self._read = len(self._rows.log)
        return self._progress

    async def save_notes(self, rows: dict[str, bytes | None]) -> None:
        self._rows.write(rows)


class Client:
    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        pass


@pytest.fixture
def links_set(monkeypatch: pytest.MonkeyPatch):
    """Says how a set came out while somebody else writes too, and what holds then."""

    async def told(values: dict[str, Any], *, unset=(), between=None, after=None):
        rows = Rows(between=between or {}, after=after or {})
        monkeypatch.setattr(ClusterEnd, "client", lambda *_, **__: Client())
        monkeypatch.setattr(asking, "ProgressStore", rows.store)
        try:
            text = (await asking.set_values(FILE, values, unset=unset)).text
        except asking.NotAsked as error:
            text = f"refused: {error}"
        progress = Progress()
        progress.apply(rows.log)
        return text, Desired.read(progress.notes).settings

    return told


async def test_what_the_link_has_nothing_of_is_not_said_to_begin_anew(monkeypatch: pytest.MonkeyPatch):
    """Of a topic with a slip in its name it was said so, and that it holds for what comes. One whose opening
    goes wrong has no progress yet: its worker names it."""
    standing = Standing("waiting", 0, -1, "raw", 1, "no answer")
    worker = WorkerReport("host:1", "1", partitions={TopicPartition("orders", 0): standing})
    rows = Rows(between={worker.key: worker.encode()}, after={})
    rows.write({})
    monkeypatch.setattr(ClusterEnd, "client", lambda *_, **__: Client())
    monkeypatch.setattr(asking, "ProgressStore", rows.store)
    for scope in (Scope("ordres"), Scope("orders", 7)):
        with pytest.raises(asking.WronglyAsked, match=r"nothing of .* to restart: isthmus links status"):
            await asking.restart(FILE, scope, asking.wish())
    for scope in (Scope("orders"), Scope("orders", 0), Scope()):
        assert (await asking.restart(FILE, scope, asking.wish())).done


async def test_two_sets_at_the_same_moment_do_not_undo_each_other(links_set):
    """The second one wrote all settings as it had read them, so without the first one's."""
    other = settings_rows({"topics": "orders"})
    text, holds = await links_set({"rate_limit": "5"}, between=other)
    assert holds == {"topics": "orders", "rate_limit": "5"}
    assert "somebody else" not in text
    text, holds = await links_set({}, unset=("rate_limit",), between=other)
    assert holds == {"topics": "orders"}


async def test_two_sets_of_one_setting_at_the_same_moment_are_told(links_set):
    other = settings_rows({"rate_limit": "7"})
    text, holds = await links_set({"rate_limit": "5"}, between=other)
    assert holds == {"rate_limit": "5"}
    assert "somebody else asked for something else at the same moment; this holds" in text
    text, holds = await links_set({"rate_limit": "5"}, after=other)
    assert holds == {"rate_limit": "7"}
    assert text.startswith(
        "refused: somebody else asked for something else at the same moment, and that holds"
    )
    text, holds = await links_set({"rate_limit": "5"}, after=settings_rows({"rate_limit": "5"}))
    assert "somebody else" not in text  # or the same row once more: an answer was lost


async def test_settings_that_an_earlier_version_wrote_in_one_row_hold_until_they_are_set_or_unset(links_set):
    whole = {"control/settings": b'{"topics":"orders","rate_limit":"7"}'}
    assert (await links_set({"rate_limit": "5"}, between=whole))[1] == {"topics": "orders", "rate_limit": "5"}
    assert (await links_set({}, unset=("topics",), between=whole))[1] == {"rate_limit": "7"}
