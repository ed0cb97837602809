"""When a link that begins again looks at what MirrorMaker 2 has copied, and who of its workers waits."""

import pytest

from protocol.client import ClientError
from protocol.errors import ErrorCode
from protocol.types import TopicPartition
from replicator import plan
from replicator.discovery import Found
from replicator.link_rows import MIRRORMAKER_KEY, Seen, read_seen, seen_row_of
from replicator.mirrormaker import returning
from replicator.mirrormaker.connect_offsets import ConnectOffsets, NotToldError
from replicator.mirrormaker.takeover import StillRunningError
from replicator.progress import Progress
from replicator.settings import LinkSettings, TakeOver
from transfer.ledger import LedgerError
from transfer.offset_map import OffsetMap, Run

ORDERS, OTHERS = TopicPartition("orders", 0), TopicPartition("others", 0)
LINK = LinkSettings.model_validate(
    {
        "source": {"alias": "east", "bootstrap": "a:1"},
        "target": {"alias": "west", "bootstrap": "b:1"},
        "take_over": TakeOver.of("east"),
    }
)


class Store:
    """A progress topic with that row alone."""

    def __init__(self, seen):
        self.progress = Progress(mirrormaker=seen)
        self.saved = []

    async def save_seen(self, seen):
        self.saved.append(seen)


@pytest.fixture
def look(monkeypatch):
    """Has MirrorMaker 2 stand somewhere, and its workers run."""

    async def looked(seen, positions, *, leading):
        async def read(*_):
            return ConnectOffsets(1, positions=positions)

        async def runs(_, told):
            raise StillRunningError(told, 1)

        async def find():
            return {"orders": None}

        monkeypatch.setattr(returning, "read_offsets", read)
        monkeypatch.setattr(returning, "must_be_idle", runs)
        store = Store(seen)
        return store, returning.go_on_behind(None, None, LINK, store, find, leading=leading)

    return looked


@pytest.mark.parametrize("leading", [True, False])
async def test_nobody_asks_for_a_mirrormaker_that_stands_where_it_was_seen(look, leading):
    _, found = await look(Seen({ORDERS: 100}), {ORDERS: 100}, leading=leading)
    assert await found is None


async def test_what_it_copies_of_topics_that_are_not_the_links_is_noted_alone(look):
    """Topics may be moved one after the other, by filters: it may go on with the rest."""
    store, found = await look(Seen({OTHERS: 5}), {OTHERS: 9}, leading=True)
    assert (await found).positions == {OTHERS: 9}
    assert not store.saved


async def test_the_leader_waits_for_its_end_and_says_so_to_the_others_first(look):
    store, found = await look(Seen({ORDERS: 100}), {ORDERS: 150}, leading=True)
    with pytest.raises(StillRunningError):
        await found
    (noted,) = store.saved
    assert noted.positions == {ORDERS: 100}
    assert noted.handed_back_ms > 0


async def test_the_others_wait_for_the_leader_once_it_is_on_record(look):
    _, found = await look(Seen({ORDERS: 100}, 7), {ORDERS: 100}, leading=False)
    with pytest.raises(ClientError, match="has not gone on behind MirrorMaker 2 yet"):
        await found


async def test_one_that_joins_a_link_that_runs_is_not_held_up_by_a_mirrormaker_beside_it(look):
    """Nobody would let it go on: the leader looks when it begins."""
    _, found = await look(Seen({ORDERS: 100}), {ORDERS: 150}, leading=False)
    assert await found is None


async def test_who_may_not_see_it_goes_on_and_only_one_that_was_handed_back_waits(look, monkeypatch, caplog):
    async def denied(*_):
        raise NotToldError("mm2-offsets.east.internal", ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    _, found = await look(Seen({ORDERS: 100}), {}, leading=True)
    monkeypatch.setattr(returning, "read_offsets", denied)
    assert await found is None
    assert "grant the link's user DESCRIBE and READ" in caplog.text
    _, found = await look(Seen({ORDERS: 100}, 7), {}, leading=True)
    monkeypatch.setattr(returning, "read_offsets", denied)
    with pytest.raises(NotToldError):
        await found


async def test_an_older_version_noted_nothing_so_only_a_position_ahead_is_looked_at(look):
    _, found = await look(None, {OTHERS: 9}, leading=True)
    assert (await found).positions == {OTHERS: 9}
    store, found = await look(None, {ORDERS: 9}, leading=True)
    with pytest.raises(StillRunningError):
        await found
    assert not store.saved  # which would make an old position one that has moved


@pytest.mark.parametrize(
    ("position", "end", "run"),
    [
        (150, 150, (100, 100, 50)),
        (150, 130, (120, 100, 30)),  # holes at the source, before what is there
        (150, 180, (100, 130, 50)),  # strangers at the target, before the copies
        (150, 100, None),
    ],
)
def test_an_estimate_never_names_a_record_behind_the_copy(position, end, run):
    runs = OffsetMap()
    runs.append(Run(0, 0, 100))
    returning._estimate(runs, position, end)
    assert runs.source_end == position
    assert runs.target_end == (end if run else 100)
    assert run is None or tuple(runs.to_target(position - 1)) == (end - 1, True)


def test_what_is_known_of_mirrormaker_is_read_as_it_was_written():
    for seen in (Seen({}), Seen({ORDERS: 100, OTHERS: 0}, 1_700_000_000_000)):
        key, value = seen_row_of(seen)
        assert key == MIRRORMAKER_KEY
        assert read_seen(value) == seen
    assert read_seen(None) is None
    with pytest.raises(LedgerError, match="MirrorMaker 2"):
        read_seen(b'{"positions": [[1]]}')


@pytest.fixture
def begins(monkeypatch):
    """What a plan says of a link that has run, where MirrorMaker 2 stands at `positions`; None: its topic is
    not there."""

    async def said(settings, seen, positions):
        async def read(*_):
            return None if positions is None else ConnectOffsets(1, positions=positions)

        monkeypatch.setattr(plan, "read_offsets", read)
        found = Found(wanted={"orders": None})
        return await plan.begins_again(None, settings, Progress(initial={}, mirrormaker=seen), found)

    return said


async def test_a_plan_tells_whether_the_topic_is_there_behind_which_a_link_goes_on_that_was_handed_back(
    begins,
):
    topic = LINK.take_over.offsets_topic
    there = await begins(LINK, Seen({ORDERS: 100}, 1), {ORDERS: 100})
    assert there == f"where MirrorMaker 2 stopped: the link was handed back to it, and {topic} is there"
    gone = await begins(LINK, Seen({ORDERS: 100}, 1), None)
    assert f"{topic} is not there" in gone
    assert "offset syncs" in gone


async def test_a_plan_tells_of_a_mirrormaker_that_was_started_again_with_no_word(begins):
    assert await begins(LINK, Seen({ORDERS: 100}), {ORDERS: 100}) == (
        f"where it stopped: {LINK.progress_topic} has progress"
    )
    moved = await begins(LINK, Seen({ORDERS: 100}), {ORDERS: 150})
    assert moved.startswith("where MirrorMaker 2 stopped: it has copied since the link ended")


async def test_a_link_that_is_no_longer_to_take_over_does_not_go_on_where_mirrormaker_stopped(begins):
    alone = LINK.model_copy(update={"take_over": None})
    text = await begins(alone, Seen({ORDERS: 100}, 1), {ORDERS: 150})
    assert text.startswith(f"where it stopped: {LINK.progress_topic} has progress")
    assert "may be copied twice" in text


async def test_a_plan_is_refused_where_a_link_that_was_handed_back_may_not_see_it(begins, monkeypatch):
    await begins(LINK, None, {})

    async def read(*_):
        raise NotToldError("topic", ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    monkeypatch.setattr(plan, "read_offsets", read)
    with pytest.raises(NotToldError):
        await plan.begins_again(None, LINK, Progress(initial={}, mirrormaker=Seen({}, 1)), Found())
    goes_on = await plan.begins_again(None, LINK, Progress(initial={}, mirrormaker=Seen({})), Found())
    assert goes_on.startswith("where it stopped")
