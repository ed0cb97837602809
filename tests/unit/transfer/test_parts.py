"""Writes in parts: all that is written is told once, also where a later part fails."""

import asyncio

import pytest

from protocol.records import Record, build_batch
from protocol.types import TopicPartition
from transfer.endpoint import AbortedError, Chunk, DisorderError, RefusedError
from transfer.kafka.lane import Ticket
from transfer.kafka.parts import BATCHES, outcome, parts_of
from transfer.ledger import Copied
from transfer.offset_map import Run
from transfer.rewrite import plan

TP = TopicPartition("t", 0)


def tickets(count):
    raw = b"".join(build_batch([Record(0, 0, None, b"x")] * 2, base_offset=n * 2) for n in range(count))
    outs, _ = plan(Chunk(TP, memoryview(raw), 0, count * 2))
    whole = Ticket(asyncio.get_running_loop().create_future(), count * 2 + 5, 9, TP, 0)
    return whole, list(parts_of(whole, outs)), outs


def copied(first, count):
    runs = (Run(first, first + 100, count),)
    return Copied(runs, first + count, count, 10 * count, (first,), written=1, first_source_offset=first)


@pytest.mark.parametrize("count", [0, 1, BATCHES, BATCHES + 1, BATCHES * 3])
async def test_all_batches_are_in_one_part_in_order(count):
    whole, parts, outs = tickets(count)
    assert [batch.out for part in parts for batch in part.batches] == outs
    assert all(batch.ticket is part for part in parts for batch in part.batches)
    assert [len(part.batches) for part in parts[:-1]] == [BATCHES] * (len(parts) - 1)
    assert parts[-1] is whole
    assert whole.batches or not count
    assert [part.next_source_offset for part in parts[:-1]] == [
        (n + 1) * BATCHES * 2 for n in range(len(parts) - 1)
    ]
    assert [part.first_source_offset for part in parts] == [n * BATCHES * 2 for n in range(len(parts))]


async def test_the_parts_are_told_together():
    _, parts, _ = tickets(BATCHES * 2 + 1)
    for number, part in enumerate(parts):
        part.done.set_result(copied(number * 10, 10))
    runs = (Run(0, 100, 10), Run(10, 110, 10), Run(20, 120, 10))
    assert await outcome(parts) == Copied(runs, 30, 30, 300, (0, 10, 20), written=3, first_source_offset=0)


@pytest.mark.parametrize(
    "error", [AbortedError("gone"), RefusedError(TP, 17, "too large", 10), DisorderError(TP, "jumped")]
)
async def test_what_is_committed_before_a_failure_is_told_with_it(error):
    _, parts, _ = tickets(BATCHES * 3)
    parts[0].done.set_result(copied(0, 10))
    error.copied = copied(10, 5)
    parts[1].done.set_exception(error)
    with pytest.raises(type(error), match=str(error)) as caught:
        await outcome(parts)
    assert caught.value is not error  # others failed by it too
    assert caught.value.copied.next_source_offset == 15
    assert (caught.value.copied.records, caught.value.copied.first_source_offset) == (15, 0)
    assert parts[2].done.cancelled()
