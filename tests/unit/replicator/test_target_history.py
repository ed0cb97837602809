"""What the target still has of what it acknowledged, by content."""

import pytest

from protocol.records import Record, build_batch
from protocol.types import TopicPartition
from replicator.target_history import NO_RECORD, Content, Window, contents, same_until
from transfer.endpoint import AbortedTransaction, Chunk
from transfer.offset_map import OffsetMap, Run

TP = TopicPartition("orders", 0)


def record(value):
    return Content(1, b"k", b"%d" % value, ())


class Held(Window):
    """What stands there, by offset."""

    def __init__(self, rows):
        self._rows = rows

    async def at(self, offset):
        return self._rows.get(offset)


def copied(*runs):
    made = OffsetMap(0, 0)
    for run in runs:
        made.append(Run(*run))
    return made


ALL = {offset: record(offset) for offset in range(10)}


def but(**changes):
    return {**ALL, **{int(key[1:]): value for key, value in changes.items()}}


@pytest.mark.parametrize(
    ("source", "target", "until"),
    [
        pytest.param(ALL, ALL, 10, id="all is there"),
        pytest.param(ALL, but(_6=record(66)), 6, id="somebody else's"),
        pytest.param(ALL, but(_6=NO_RECORD), 6, id="a marker, or what was aborted"),
        pytest.param(ALL, but(_6=None), 10, id="compacted away at the target"),
        pytest.param(
            but(_6=None), ALL, 10, id="one compacted away at the source, and those behind it are there"
        ),
        pytest.param(but(_8=None, _9=None), ALL, 8, id="the last ones are gone at the source"),
        pytest.param({}, ALL, 3, id="the source has none of it"),
        pytest.param(ALL, but(_9=record(1)), 9, id="the last one"),
        pytest.param(ALL, {}, 10, id="compacted away, all of it"),
    ],
)
async def test_it_is_the_same_up_to_the_first_record_that_is_another(source, target, until):
    runs = copied((0, 0, 10))
    assert await same_until(runs, 3, 10, Held(source), Held(target)) == until


async def test_records_are_looked_for_where_the_ledger_has_them():
    runs = copied((0, 100, 3), (5, 104, 5))
    moved = {100: ALL[0], 101: ALL[1], 102: ALL[2], **{104 + n: ALL[5 + n] for n in range(5)}}
    assert await same_until(runs, 101, 109, Held(ALL), Held(moved)) == 109
    assert await same_until(runs, 101, 109, Held(ALL), Held({**moved, 105: ALL[9]})) == 105


async def test_what_the_log_does_not_reach_is_not_there():
    assert await same_until(copied((0, 0, 10)), 3, 7, Held(ALL), Held(ALL)) == 7


def test_the_brokers_own_time_is_no_difference():
    assert record(1).same(record(1)._replace(timestamp=-1))
    assert not record(1).same(record(1)._replace(timestamp=2))
    assert not record(1).same(record(1)._replace(headers=(("a", b""),)))


async def test_a_window_reads_each_piece_once_and_knows_markers_and_aborted_records():
    batches = [
        build_batch([Record(0, 1, b"k", b"0"), Record(0, 1, b"k", b"1")], base_offset=0),
        build_batch([Record(0, 1, b"k", b"2")], base_offset=2, producer_id=7, transactional=True),
        build_batch(
            [Record(0, 1, b"\0\0\0\0", b"")], base_offset=3, producer_id=7, transactional=True, control=True
        ),
        build_batch([Record(0, 1, b"k", b"9")], base_offset=9),
    ]
    asked = []

    async def read(offset):
        asked.append(offset)
        few = batches[:3] if offset < 4 else batches[3:]
        aborted = (AbortedTransaction(7, 2),)
        return Chunk(TP, memoryview(b"".join(few)), offset, 4 if offset < 4 else 10, aborted=aborted)

    window = Window(read, 0, 10)
    found = [await window.at(offset) for offset in (0, 1, 2, 3, 5, 9, 11)]
    assert found == [record(0), record(1), NO_RECORD, NO_RECORD, None, record(9), None]
    assert asked == [0, 5]


def test_contents_of_a_chunk_with_the_brokers_time():
    batch = build_batch([Record(0, 1, b"k", b"0")], base_offset=4, timestamp_type=1)
    assert dict(contents(Chunk(TP, memoryview(batch), 4, 5))) == {4: record(0)._replace(timestamp=-1)}
