"""Whether a connector still runs, by the topic where Connect's workers write its state."""

import json

import pytest

from protocol.errors import ErrorCode, KafkaError
from replicator.mirrormaker import connect_status
from replicator.mirrormaker.connect_status import not_at_rest
from replicator.mirrormaker.history import Copy
from replicator.mirrormaker.takeover import StillRunningError, must_be_idle
from replicator.settings import TakeOver

TOLD = TakeOver(offsets_topic="o", connector="a->b.Mirror", group="connect", status_topic="status")


class Topic:
    error = ErrorCode.NONE
    partitions = (0,)


class Group:
    members = (1, 2)


class Target:
    """A worker's group with two members, whatever its connectors do."""

    def __init__(self):
        self.topics = {"status": Topic()}

    async def metadata(self, names):
        return self

    async def describe_groups(self, groups):
        return {groups[0]: Group()}


@pytest.fixture
def runs(monkeypatch):
    async def asked(*rows, told=TOLD, target=None):
        async def committed(client, tp, position):
            yield (
                0,
                [
                    Copy(
                        0,
                        0,
                        key.encode(),
                        None if state is None else json.dumps({"state": state}).encode(),
                        (),
                    )
                    for key, state in rows
                ],
            )

        monkeypatch.setattr(connect_status, "committed", committed)
        return await not_at_rest(target or Target(), told)

    return asked


OTHER = ("status-connector-other", "RUNNING")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("connector", "RUNNING"), ("task-0", "RUNNING")], True),
        ([("connector", "RUNNING")], True),  # its tasks come later
        ([("connector", "RUNNING"), ("task-0", "FAILED")], True),
        ([("connector", "STOPPED"), ("task-0", "RUNNING")], True),  # it ends in a moment
        ([("connector", "STOPPED"), ("task-0", "RUNNING"), ("task-0", "UNASSIGNED")], False),
        ([("connector", "STOPPED"), ("task-0", "RUNNING"), ("task-0", None)], False),
        ([("connector", "PAUSED"), ("task-0", "PAUSED"), ("task-11", "PAUSED")], False),
        ([("connector", "PAUSED"), ("task-0", "PAUSED"), ("task-11", "RESTARTING")], True),
        ([("connector", "RUNNING"), ("task-0", "RUNNING"), ("connector", None), ("task-0", None)], False),
        ([("connector", "PAUSED"), ("connector", "RUNNING")], True),
        ([], False),  # deleted long ago, its rows with it
    ],
)
async def test_the_last_state_of_a_connector_and_of_its_tasks_counts(runs, rows, expected):
    def key(what):
        kind, _, number = what.partition("-")
        return f"status-{kind}-{TOLD.connector}" + (f"-{number}" if number else "")

    named = [(key(what), state) for what, state in rows]
    found = await runs(OTHER, *named, ("status-task-a->b.Mirror-x-0", "RUNNING"))
    assert (found is not None) is expected, found


async def test_what_is_not_told_may_run(runs):
    stopped = (f"status-connector-{TOLD.connector}", "STOPPED")
    assert await runs(stopped) is None
    assert await runs(stopped, told=TOLD.model_copy(update={"status_topic": ""})) == ""
    elsewhere = TOLD.model_copy(update={"status_topic": "elsewhere"})
    assert await runs(stopped, told=elsewhere) == "elsewhere is not there"
    assert await runs() == "status holds no states of connectors"  # workers that live have written some
    assert await runs(("some", "STOPPED")) == "status holds no states of connectors"
    assert "a task that is 5" in await runs((f"status-task-{TOLD.connector}-0", 5), stopped)


async def test_a_topic_that_may_not_be_read_tells_nothing(monkeypatch):
    async def committed(client, tp, position):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, str(tp))
        yield

    monkeypatch.setattr(connect_status, "committed", committed)
    assert await not_at_rest(Target(), TOLD) == "status may not be read"


async def test_a_link_does_not_wait_for_workers_that_run_other_connectors(runs):
    await runs(OTHER, (f"status-connector-{TOLD.connector}", "STOPPED"))
    await must_be_idle(Target(), TOLD)
    await runs(OTHER, (f"status-connector-{TOLD.connector}", "RUNNING"))
    with pytest.raises(
        StillRunningError, match=r"2 members at the target; a->b\.Mirror is RUNNING by status"
    ) as raised:
        await must_be_idle(Target(), TOLD)
    assert raised.value.to_do.startswith("stop or delete a->b.Mirror")
