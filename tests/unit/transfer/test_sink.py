"""The sink against a scripted cluster: the order of calls is the order at the target, whatever is slow."""

import asyncio

import pytest

from protocol.client import Broker, Metadata, PartitionMetadata, TopicMetadata
from protocol.client.log_calls import ProducerId
from protocol.codec import decode
from protocol.errors import ErrorCode
from protocol.frames import encode_response
from protocol.messages.produce_request import ProduceRequest
from protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records import Codec, Record, build_batch, check_crc, read_header, set_producer
from protocol.records.header import HEADER_SIZE
from protocol.types import TopicPartition
from transfer.endpoint import AbortedError, Chunk, ClosedError, PositionLostError, RefusedError
from transfer.kafka.sink import KafkaSink, ProduceSettings
from transfer.ledger import ProducerState

TP = TopicPartition("orders", 0)


class Connection:
    closed = full = retired = False

    def __init__(self, cluster):
        self._cluster = cluster

    def version_of(self, request, newest=None):
        return 12

    def call(self, request, version, body, answered):
        produced = decode(ProduceRequest, version, b"".join(body))
        asyncio.get_running_loop().call_soon(lambda: answered(self._frame(produced, version)))
        return True

    def _frame(self, request, version):
        topics = []
        for topic in request.topic_data:
            answers = []
            for data in topic.partition_data:
                header = read_header(data.records)
                if self._cluster.hurts > 0 or not check_crc(data.records, 0, header):
                    self._cluster.hurts -= 1
                    code = ErrorCode.CORRUPT_MESSAGE
                    answers.append(PartitionProduceResponse(index=data.index, error_code=code))
                    continue
                if self._cluster.log and header.base_sequence > self._cluster.log[-1][0] + 1:
                    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                    answers.append(PartitionProduceResponse(index=data.index, error_code=code))
                    continue
                if header.record_count > self._cluster.takes_records:
                    code = self._cluster.refuses_with
                    answers.append(PartitionProduceResponse(index=data.index, error_code=code))
                    continue
                base = len(self._cluster.log)
                if header.base_sequence == 0:
                    self._cluster.begun.append(header.producer_id)
                self._cluster.log += [
                    (header.base_sequence, bytes(data.records[HEADER_SIZE:]))
                ] * header.record_count
                answers.append(PartitionProduceResponse(index=data.index, base_offset=base))
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
        return memoryview(b"".join(encode_response(ProduceResponse(responses=topics), version, 1))[4:])

    async def close(self):
        pass


class Cluster:
    """What a sink needs of a client; producer ids come late."""

    def __init__(self):
        self.log = []
        self.producers = 0
        self.begun = []
        """Producers that have written sequence 0."""
        self.takes_records = 1000
        self.refuses_with = ErrorCode.MESSAGE_TOO_LARGE
        self.hurts = 0
        """So many batches arrive damaged."""
        self.topic_id = bytes(15) + b"\2"
        self.producer_known = asyncio.Event()
        self.asked = asyncio.Event()

    async def metadata(self, topics):
        partition = PartitionMetadata(1, 0, (1,), (1,))
        topic = TopicMetadata("orders", self.topic_id, ErrorCode.NONE, False, {0: partition, 1: partition})
        return Metadata("c", 1, {1: Broker("h", 1)}, {"orders": topic})

    async def init_producer_id(self):
        self.asked.set()
        await self.producer_known.wait()
        self.producers += 1
        return ProducerId(4 + self.producers, 0)

    async def connection_to(self, node, lane):
        return Connection(self)


def chunk(number):
    batch = build_batch([Record(0, 1, b"k", b"%d" % number)], base_offset=number)
    return Chunk(TP, memoryview(batch), number, number + 1)


async def test_writes_before_and_after_the_producer_is_known_keep_their_order():
    cluster = Cluster()
    sink = KafkaSink(cluster)
    early = [asyncio.ensure_future(sink.write(TP, chunk(number))) for number in range(5)]
    await cluster.asked.wait()
    cluster.producer_known.set()
    late = []
    for number in range(5, 20):  # while the early ones are still being woken up
        late.append(asyncio.ensure_future(sink.write(TP, chunk(number))))
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        copied = await asyncio.gather(*early, *late)
    assert [(done.runs[0].source, done.runs[0].target) for done in copied] == [(n, n) for n in range(20)]
    assert [sequence for sequence, _ in cluster.log] == list(range(20))
    await sink.aclose()


async def test_where_joined_batches_are_refused_they_go_as_the_source_has_them():
    cluster = Cluster()
    cluster.producer_known.set()
    cluster.takes_records = 1
    sink = KafkaSink(cluster, ProduceSettings(merge=True))
    whole = b"".join(bytes(chunk(number).batches) for number in range(5))
    together = Chunk(TP, memoryview(whole), 0, 5)
    async with asyncio.timeout(10):
        with pytest.raises(PositionLostError, match="in batches as the source has it"):
            await sink.write(TP, together)
        await sink.open(TP)
        copied = await sink.write(TP, together)
    assert [(run.source, run.target, run.length) for run in copied.runs] == [(0, 0, 5)]
    assert len(cluster.log) == len(copied.crcs) == 5
    await sink.aclose()


def large(number, *, hurt=False):
    batch = bytearray(build_batch([Record(0, 1, b"k", bytes(20_000))], base_offset=number))
    batch[-1] ^= hurt
    return Chunk(TP, memoryview(batch), number, number + 1)


async def test_a_large_batch_that_was_damaged_at_the_source_is_refused_by_the_target_and_named():
    """Nobody reads it here; what stands before it is written, and nothing behind it."""
    cluster = Cluster()
    cluster.producer_known.set()
    sink = KafkaSink(cluster)
    async with asyncio.timeout(10):
        writes = [sink.write(TP, large(0)), sink.write(TP, large(1, hurt=True)), sink.write(TP, large(2))]
        assert (await writes[0]).runs[0].target == 0
        with pytest.raises(RefusedError, match=r"at source offset 1: .*damaged at the source"):
            await writes[1]
        with pytest.raises(ClosedError):
            await writes[2]
    assert len(cluster.log) == 1
    await sink.aclose()


@pytest.mark.parametrize("readable", [False, True])
async def test_a_batch_that_makes_the_target_fail_is_refused_if_nobody_can_read_it(readable):
    """Kafka answers so to what it cannot decompress; a broker that takes batches as they come may hold it."""
    cluster = Cluster()
    cluster.producer_known.set()
    cluster.takes_records, cluster.refuses_with = 0, ErrorCode.UNKNOWN_SERVER_ERROR
    batch = bytearray(build_batch([Record(0, 1, b"k", bytes(100))], codec=Codec.ZSTD))
    if not readable:
        batch[HEADER_SIZE:] = bytes(len(batch) - HEADER_SIZE)
        set_producer(
            batch, 0, read_header(batch), producer_id=-1, producer_epoch=-1, base_sequence=-1
        )  # with the right checksum
    sink = KafkaSink(cluster)
    async with asyncio.timeout(10):
        write = asyncio.ensure_future(sink.write(TP, Chunk(TP, memoryview(batch), 0, 1)))
        if readable:
            while not sink.retries(TP):
                await asyncio.sleep(0.01)
            cluster.takes_records = 1
            assert (await write).records == 1
        else:
            with pytest.raises(RefusedError, match="records cannot be read"):
                await write
    await sink.aclose()


async def test_a_partition_that_begins_again_is_written_by_a_producer_that_has_not_begun_there():
    """Sequence 0 of the same one would be acknowledged where it stood before, and not be written."""
    cluster = Cluster()
    cluster.producer_known.set()
    sink = KafkaSink(cluster)
    async with asyncio.timeout(10):
        for number in range(3):
            await sink.open(TP)
            await sink.write(TP, chunk(number))
    assert len(set(cluster.begun)) == len(cluster.begun) == 3
    await sink.aclose()


async def test_a_batch_that_was_damaged_on_its_way_is_sent_again():
    cluster = Cluster()
    cluster.producer_known.set()
    cluster.hurts = 1
    sink = KafkaSink(cluster)
    async with asyncio.timeout(10):
        assert (await sink.write(TP, large(0))).runs[0].target == 0
    assert sink.retries(TP) == 1
    await sink.aclose()


async def test_joined_batches_are_one_batch_at_the_target_and_all_of_them_in_the_digest():
    cluster = Cluster()
    cluster.producer_known.set()
    sink = KafkaSink(cluster, ProduceSettings(merge=True))
    whole = b"".join(bytes(chunk(number).batches) for number in range(5))
    async with asyncio.timeout(10):
        copied = await sink.write(TP, Chunk(TP, memoryview(whole), 0, 5))
    assert {sequence for sequence, _ in cluster.log} == {0}
    assert (copied.records, copied.bytes, len(copied.crcs)) == (5, len(whole), 5)
    await sink.aclose()


async def test_what_comes_behind_a_close_is_not_written_before_the_partition_is_opened_again():
    """It stands behind what was given up: written, it would hide the hole."""
    cluster = Cluster()
    sink = KafkaSink(cluster)
    try:
        await sink.open(TP)
        given_up = asyncio.ensure_future(sink.write(TP, chunk(0)))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(sink.close(TP))
        await asyncio.sleep(0)
        with pytest.raises(ClosedError):
            await sink.write(TP, chunk(1))
        await closing
        with pytest.raises(ClosedError):
            await given_up
        with pytest.raises(ClosedError):
            await sink.write(TP, chunk(1))
        assert not any(payload == bytes(chunk(1).batches[HEADER_SIZE:]) for _, payload in cluster.log)
        cluster.producer_known.set()
        await sink.open(TP)
        async with asyncio.timeout(10):
            assert (await sink.write(TP, chunk(0))).runs[0].source == 0
    finally:
        await sink.aclose()


async def test_partitions_of_a_topic_whose_name_another_one_took_are_given_up():
    """By name their batches would go into the new one, in the middle: it takes any sequence."""
    cluster = Cluster()
    cluster.producer_known.set()
    sink = KafkaSink(cluster)
    other = TopicPartition("orders", 1)
    async with asyncio.timeout(10):
        await sink.write(TP, chunk(0))
        cluster.topic_id = bytes(15) + b"\3"
        await sink.open(other)
        await sink.write(other, chunk(0))
        before = list(cluster.log)
        with pytest.raises(PositionLostError, match="another topic took the name"):
            await sink.write(TP, chunk(1))
    assert cluster.log == before
    await sink.aclose()


async def test_metadata_that_does_not_know_ids_does_not_unbind_a_topic():
    """Of a broker that is being upgraded."""
    cluster = Cluster()
    cluster.producer_known.set()
    sink = KafkaSink(cluster)
    async with asyncio.timeout(10):
        await sink.open(TP, topic_id=cluster.topic_id)
        cluster.topic_id = bytes(16)
        await sink.write(TP, chunk(0))
        cluster.topic_id = bytes(15) + b"\3"
        sink._leave(sink._lanes[TP])
        with pytest.raises(PositionLostError, match="another topic took the name"):
            await sink.write(TP, chunk(1))
    await sink.aclose()


class Gate:
    """Transactions that let everything through, and hear what cannot be known."""

    transactional_id = "t"

    def __init__(self):
        self.spoiled = []

    def attach(self, *_):
        pass

    async def run(self):
        await asyncio.Event().wait()

    async def abort_open(self):
        pass

    async def closed(self, lane, *, dirty):
        pass

    def takes(self, lane):
        if not lane.identified:
            lane.identify(ProducerState(5, 0, 0))
        return True

    def lets(self, lane, pending):
        return True

    def landed(self, lane, ticket, copied, error):
        if error is None:
            ticket.done.set_result(copied)
        else:
            ticket.done.set_exception(error)

    def spoil(self, lane, why):
        self.spoiled.append(why)

    def stir(self):
        pass


@pytest.mark.parametrize("hurts", [0, 1])
async def test_what_was_sent_twice_and_is_refused_may_be_there(hurts):
    """Its transaction must not be committed: progress says that it is not."""
    cluster = Cluster()
    cluster.takes_records = 0
    cluster.hurts = hurts
    gate = Gate()
    sink = KafkaSink(cluster, transactions=gate)
    async with asyncio.timeout(10):
        with pytest.raises(RefusedError, match="MESSAGE_TOO_LARGE"):
            await sink.write(TP, chunk(0))
    assert len(gate.spoiled) == hurts
    await sink.aclose()


async def test_what_a_broker_took_behind_a_batch_that_it_refused_must_not_be_committed():
    """It knows nothing of the producer any more (`producer.id.expiration.ms`), so it takes any sequence
    number; progress says that it is not there, and it would be written once more."""
    cluster, gate = Cluster(), Gate()
    sink = KafkaSink(cluster, transactions=gate)
    async with asyncio.timeout(10):
        await sink.write(TP, chunk(0))
        cluster.log.clear()
        cluster.takes_records = 1
        large = build_batch([Record(0, 1, b"k", b"x")] * 2, base_offset=1)
        refused = asyncio.ensure_future(sink.write(TP, Chunk(TP, memoryview(large), 1, 3)))
        behind = asyncio.ensure_future(sink.write(TP, chunk(3)))
        with pytest.raises(RefusedError, match="MESSAGE_TOO_LARGE"):
            await refused
        with pytest.raises(ClosedError):
            await behind
    assert len(cluster.log) == len(gate.spoiled) == 1
    await sink.aclose()


async def test_a_transaction_that_can_only_be_aborted_refuses_no_partition():
    """From Produce v11 on (KIP-890), where earlier versions say INVALID_TXN_STATE: the coordinator has ended
    the transaction, and nothing is wrong with the batch."""
    cluster, gate = Cluster(), Gate()
    cluster.takes_records, cluster.refuses_with = 0, ErrorCode.TRANSACTION_ABORTABLE
    sink = KafkaSink(cluster, transactions=gate)
    async with asyncio.timeout(10):
        with pytest.raises(AbortedError, match="TRANSACTION_ABORTABLE"):
            await sink.write(TP, chunk(0))
    assert len(gate.spoiled) == 1
    await sink.aclose()
