"""Where partitions end at a source of which a part, or all, says nothing: what is known in time counts."""

import asyncio
from types import SimpleNamespace

import pytest

from protocol.client import EARLIEST, ListedOffset, PartitionMetadata, TopicMetadata
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition, uuid_to_text
from replicator.ends import SourceEnd, ends_now, source_ends
from replicator.settings import ClusterEnd
from tests.support.jumping_loop import run_jumping

ID = bytes(15) + b"\1"
ORDERS = [TopicPartition("orders", number) for number in range(4)]


class Source:
    """`orders` on brokers 1 and 2 by turns; those of `silent` never answer."""

    def __init__(self, *silent, refuses=()):
        self.silent, self.refuses = silent, refuses

    async def metadata(self, topics):
        partitions = {tp.partition: PartitionMetadata(1 + tp.partition % 2, 0, (1,), (1,)) for tp in ORDERS}
        there = {"orders": TopicMetadata("orders", ID, ErrorCode.NONE, False, partitions)}
        return SimpleNamespace(topics=there)

    async def list_offsets(self, spots, *, isolation, retry):
        if any(1 + tp.partition % 2 in self.silent for tp in spots):
            await asyncio.sleep(3600)
        for tp in spots:
            if tp in self.refuses:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return {tp: ListedOffset(2 if spot == EARLIEST else 7, -1, -1) for tp, spot in spots.items()}


def asked(source, topic_ids, seconds=4.0):
    async def work():
        loop, found = asyncio.get_running_loop(), {}
        silent = await source_ends(source, topic_ids, found, loop.time() + seconds)
        return found, silent, loop.time()

    return run_jumping(work())


def test_a_silent_broker_hides_its_own_partitions_only_and_is_not_waited_for_long():
    found, silent, took = asked(Source(2), dict.fromkeys(ORDERS, uuid_to_text(ID)))
    assert took < 4.0
    assert silent == {2: 2}
    for tp in ORDERS:
        if tp.partition % 2:
            assert found[tp] == SourceEnd(None, "broker 2 of the source does not answer")
        else:
            assert found[tp] == SourceEnd(7, first=2)


def test_what_is_gone_made_anew_or_refused_says_so():
    gone, anew = TopicPartition("gone", 0), ORDERS[0]
    ids = {gone: "x", anew: "another", ORDERS[1]: uuid_to_text(ID), ORDERS[3]: uuid_to_text(ID)}
    found, silent, _ = asked(Source(refuses=[ORDERS[1]]), ids)
    assert not silent
    assert {tp: end.state for tp, end in found.items()} == {
        gone: "deleted at the source",
        anew: "created again at the source, not copied yet",
        ORDERS[1]: "the source says NOT_LEADER_OR_FOLLOWER",
        ORDERS[3]: "",
    }


@pytest.mark.parametrize("addresses", [1, 3])
async def test_a_source_that_takes_connections_and_says_nothing_is_given_up_in_time(addresses):
    async def keep(reader, writer):
        await reader.read()
        writer.close()

    servers = [await asyncio.start_server(keep, "127.0.0.1", 0) for _ in range(addresses)]
    try:
        where = ",".join(f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers)
        async with asyncio.timeout(30):
            found, problem = await ends_now(
                ClusterEnd(alias="east", bootstrap=where), {ORDERS[0]: "x"}, answer_s=0.3
            )
    finally:
        for server in servers:
            server.close()
            await server.wait_closed()
    assert found == {}
    assert problem == "no answer of east within 0.3 s"
