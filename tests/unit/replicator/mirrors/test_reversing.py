"""Reading an old side's logs while retention takes their beginnings."""

import json

import pytest

from protocol.client import EARLIEST, Fetched, ListedOffset
from protocol.errors import ErrorCode, KafkaError
from protocol.records import Record, build_batch, decode_batches
from protocol.types import TopicPartition
from replicator.mirrors import reversing
from replicator.mirrors.reversing import Parting, partings, save

TP = TopicPartition("t", 0)


class Log:
    """A side with records 0 to 9, one in each batch. `moves`: where its log begins before each fetch."""

    cluster_id = "old"

    def __init__(self, *moves):
        self.start = 0
        self.moves = list(moves)

    async def list_offsets(self, spots):
        return {tp: ListedOffset(self.start if at == EARLIEST else 10, -1, -1) for tp, at in spots.items()}

    async def fetch(self, tp, offset, **_):
        if self.moves:
            self.start = self.moves.pop(0)
        if not self.start <= offset < 10:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{tp} at {offset}")
        batch = build_batch([Record(0, 1, None, b"%d" % offset)], base_offset=offset, leader_epoch=1)
        return Fetched(tp, memoryview(bytes(batch)), 10, 10, self.start)


def parting():
    return Parting(*TP, 4, 10, 4, 6, 0.0)


@pytest.mark.parametrize(
    ("moves", "values", "gone"),
    [([], range(4, 10), []), ([6], range(6, 10), [[4, 6]]), ([4, 4, 9], [4, 5, 9], [[6, 9]])],
)
async def test_what_retention_takes_while_it_is_saved_is_on_record(tmp_path, moves, values, gone):
    path = await save(Log(*moves), TP, parting(), tmp_path)
    assert [int(record.value) for record in decode_batches(path.read_bytes())] == [*values]
    about = json.loads(path.with_suffix(".json").read_text())
    assert (about["from_offset"], about["to_offset"], about["taken_by_retention"]) == (4, 10, gone)


async def test_an_offset_that_retention_did_not_take_is_an_error(tmp_path):
    class Odd(Log):
        async def fetch(self, tp, offset, **_):
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{tp} at {offset}")

    with pytest.raises(KafkaError):
        await save(Odd(), TP, parting(), tmp_path)


async def test_a_parting_is_looked_for_again_where_retention_came_between(monkeypatch):
    looks = []

    async def look(*_):
        looks.append(1)
        if len(looks) < 3:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "t-0")
        return parting()

    async def none(*_):
        return {}

    async def nothing_made(*_):
        return set()

    class Names(Log):
        async def metadata(self, names):
            topic = type("Topic", (), {"partitions": [0]})
            return type("Metadata", (), {"topics": dict.fromkeys(names, topic)})

    monkeypatch.setattr(reversing, "_parting", look)
    monkeypatch.setattr(reversing, "_ended_copies", none)
    monkeypatch.setattr(reversing, "_made_since", nothing_made)
    assert await partings(Names(), Names(), {"t": None}) == [parting()]
    assert len(looks) == 3
