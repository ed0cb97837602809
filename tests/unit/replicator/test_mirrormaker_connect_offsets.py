"""The topic where Kafka Connect keeps MirrorMaker 2's progress: keys, values, and where they stand."""

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.records.header import iter_headers
from protocol.records.reading import read_records
from protocol.types import TopicPartition
from replicator.mirrormaker.connect_offsets import (
    ConnectOffsets,
    key_of,
    murmur2,
    partition_of,
    write_offsets,
)
from replicator.mirrormaker.history import Copy
from replicator.settings import TakeOver

TOLD = TakeOver.of("east")
ORDERS = TopicPartition("orders", 0)
KEY = b'["MirrorSourceConnector",{"cluster":"east","partition":0,"topic":"orders"}]'


@pytest.mark.parametrize(
    ("data", "java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_are_hashed_as_by_javas_producer(data, java):
    """Numbers of Kafka's own UtilsTest, which are signed."""
    assert murmur2(data) == java & 0xFFFF_FFFF
    assert partition_of(data, 25) == (java & 0x7FFF_FFFF) % 25


def test_a_key_has_the_bytes_that_connect_looks_up():
    assert key_of("MirrorSourceConnector", "east", ORDERS) == KEY
    assert key_of('a "näme"', "east", ORDERS).startswith('["a \\"näme\\"",{"cluster"'.encode())


def row(key, value):
    return Copy(0, 0, key, value, ())


def test_the_stored_offset_is_the_last_copied_one_and_null_forgets():
    found = ConnectOffsets(25)
    found.take(TOLD, "east", 3, row(KEY, b'{"offset":99}'))
    assert found.positions == {ORDERS: 100}
    assert found.places == {ORDERS: {(3, KEY)}}
    found.take(TOLD, "east", 3, row(KEY, None))
    assert (found.positions, found.forgotten) == ({}, {ORDERS})
    found.take(TOLD, "east", 3, row(KEY, b'{"offset":4}'))
    assert (found.positions, found.forgotten) == ({ORDERS: 5}, set())


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"\xff",
        b'["MirrorSourceConnector"]',
        b'["MirrorSourceConnector",null]',
        b'["other",{"cluster":"east","partition":0,"topic":"orders"}]',
        b'["MirrorSourceConnector",{"cluster":"north","partition":0,"topic":"orders"}]',
    ],
)
def test_rows_of_others_and_damaged_ones_count_for_nothing(key):
    found = ConnectOffsets(25)
    found.take(TOLD, "east", 3, row(key, b'{"offset":99}'))
    assert not found.positions
    assert not found.places


class Target:
    def __init__(self):
        self.rows = {}

    async def produce(self, tp, batch):
        for pos, header in iter_headers(batch):
            for record in read_records(batch, pos, header):
                self.rows[tp.partition, record.key] = record.value


async def test_rows_go_where_connect_looks_and_wherever_older_ones_stand():
    """A topic that was grown, or a row that somebody wrote by hand: else the older one might count."""
    target, before, home = Target(), ConnectOffsets(25), partition_of(KEY, 25)
    other = b'["MirrorSourceConnector", {"topic":"orders", "partition":0, "cluster":"east"}]'
    before.take(TOLD, "east", 24 - home, row(KEY, b'{"offset":1}'))
    before.take(TOLD, "east", home, row(other, b'{"offset":2}'))
    await write_offsets(target, TOLD, "east", before, {ORDERS: 100})
    stored = b'{"offset":99}'
    assert target.rows == {(home, KEY): stored, (24 - home, KEY): stored, (home, other): stored}


async def test_where_nothing_is_copied_the_progress_is_taken_back():
    """Connect knows no offset before the first: without one it begins at the start of the log."""
    target = Target()
    await write_offsets(target, TOLD, "east", ConnectOffsets(25), {ORDERS: 0})
    assert target.rows == {(partition_of(KEY, 25), KEY): None}


async def test_who_may_not_write_there_is_told_which_right_is_missing():
    class Closed(Target):
        async def produce(self, tp, batch):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, str(tp))

    with pytest.raises(KafkaError) as refused:
        await write_offsets(Closed(), TOLD, "east", ConnectOffsets(25), {ORDERS: 100})
    assert refused.value.to_do == "grant the link's user WRITE on topic mm2-offsets.east.internal"
