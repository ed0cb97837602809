"""What answers of Fetch mean for the position of who reads."""

import pytest

from protocol.messages.fetch_response import PartitionData
from protocol.records import Record, build_batch
from protocol.types import TopicPartition
from tests.support.batches import old_message
from transfer.endpoint import Chunk
from transfer.kafka.positions import Trouble, interpret, took
from transfer.kafka.reading import Reading
from transfer.rewrite import plan

TP = TopicPartition("orders", 0)


def batch(base: int, records: int = 2) -> bytes:
    rows = [Record(number, 1, None, b"v") for number in range(records)]
    return bytes(build_batch(rows, base_offset=base, leader_epoch=4))


def test_a_batch_that_begins_before_the_position_moves_it_behind_the_batch() -> None:
    reading = Reading(TP, 11, attempts=3)
    chunk = took(reading, 12, 12, 0, memoryview(batch(10)))
    assert isinstance(chunk, Chunk)
    assert (chunk.first_offset, chunk.next_offset, reading.position, reading.last_epoch) == (11, 12, 12, 4)
    assert not reading.attempts


def test_the_position_never_goes_back() -> None:
    """No broker gives what stands before it; one that names a partition twice gives it twice."""
    reading = Reading(TP, 0)
    assert took(reading, 4, 4, 0, memoryview(batch(0) + batch(2))) is not None
    reading.back_off(0)
    for again in (batch(0) + batch(2), batch(0)):
        assert took(reading, 4, 4, 0, memoryview(again)) is Trouble.LATER
        assert (reading.position, reading.attempts) == (4, 1)


def test_where_a_leader_names_a_nearer_replica_that_one_is_asked() -> None:
    """KIP-392: a broker with a selector of its own may do that unasked; it gives no records then."""
    reading = Reading(TP, 0, leader=1)
    row = PartitionData(partition_index=0, high_watermark=4, preferred_read_replica=2, records=b"")
    assert interpret(reading, row) is Trouble.ELSEWHERE
    assert (reading.leader, reading.position) == (2, 0)
    row.records = memoryview(batch(0))  # one that has them all the same
    assert isinstance(interpret(reading, row), Chunk)


@pytest.mark.parametrize("timestamp", [1_500_000_000_000, 1_500_009_000_000, 1_600_000_000_000])
@pytest.mark.parametrize("value", [b"", bytes(200)])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_of_an_old_format_is_handed_on_and_refused_whatever_its_bytes_say(
    timestamp: int, value: bytes, magic: int
) -> None:
    """Logs that were begun before Kafka 0.11 hold them, and brokers give them as they are (KIP-724)."""
    reading = Reading(TP, 5)
    old = old_message(5, value, timestamp, magic=magic)
    found = took(reading, 100, 100, 0, memoryview(old))
    assert isinstance(found, Chunk)
    assert (found.next_offset, reading.position, reading.last_epoch) == (6, 6, -1)
    planned, refusal = plan(found)
    assert not planned
    assert refusal is not None
    assert refusal.offset == 5
    assert f"magic {magic}" in refusal.reason
