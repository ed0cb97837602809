"""When a link says that its partitions do not get on."""

from protocol.types import TopicPartition
from replicator.mirrors.partition import MirrorPartition, Piece, State
from replicator.mirrors.standstill import Standstill

FULL = "No space left on device"


def part(number):
    return MirrorPartition(TopicPartition("orders", number), "text")


def refused(one, times):
    """As copying goes: aligned, and the next append fails."""
    for _ in range(times):
        one.aligned(0, 10, 0)
        one.heard(0, 20, 0)
        one.realign(0.0, FULL)


def test_a_short_trouble_is_not_said():
    one = part(0)
    standstill = Standstill()
    refused(one, 3)
    assert standstill.look({one.tp: one}) is None


def test_a_standstill_is_said_once_and_its_end_too():
    one, other = part(0), part(1)
    parts = {one.tp: one, other.tp: other}
    standstill = Standstill()
    refused(one, 6)
    assert standstill.look(parts) == f"1 partitions stand still, and are tried again; orders-0: {FULL}"
    refused(other, 6)
    one.aligned(0, 10, 0)  # tried again: nothing is better yet
    assert standstill.look(parts) is None
    for each in parts.values():
        each.aligned(0, 10, 0)
        each.heard(0, 20, 0)
        each.put(Piece(10, memoryview(b"x"), 20, 0))
        assert standstill.look(parts) is None
        each.done(each.queue[0])
    assert standstill.look(parts) == "no partition stands still any more"
    assert standstill.look(parts) is None


def test_what_needs_a_person_is_said_elsewhere():
    one = part(0)
    refused(one, 8)
    one.stop("another topic")
    assert one.state is State.STOPPED
    assert Standstill().look({one.tp: one}) is None
