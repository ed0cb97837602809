"""Transactions that nobody will end any more: readers of committed records, and so a link, wait for ever.

Owns finding them, as `kafka-transactions find-hanging` does (KIP-664). Apache Kafka's coordinator takes a
partition that has no leader when markers are to be written for deleted, and forgets them; an unclean election
drops them. What settles it is not age: a transaction is open in a partition, its coordinator says that it has
nothing more to write there, and afterwards it is still open.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from protocol.client import NO_RETRIES, ClusterClient, Isolation, NotSupportedError
from protocol.client.failures import failure
from protocol.client.spread import by_topic
from protocol.errors import ErrorCode
from protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from protocol.messages.list_transactions_request import ListTransactionsRequest
from protocol.types import TopicPartition
from replicator.ends import readable_ends


class Hanging(NamedTuple):
    """A transaction that nobody will end, open from offset `start` on. `known_as`: the transactional id by
    which a coordinator knows its producer; empty: none that this user may see does. `last_ms` is of its last
    record there."""

    tp: TopicPartition
    start: int
    producer_id: int
    known_as: str
    last_ms: int = -1


class Open(NamedTuple):
    """A transaction that a partition's leader takes for open, from offset `start` on."""

    tp: TopicPartition
    producer_id: int
    start: int
    last_ms: int


async def hanging(
    client: ClusterClient, brokers: Collection[int], tps: Collection[TopicPartition]
) -> list[Hanging]:
    """Of these partitions. Raises ProtocolError while a broker does not say what it coordinates."""
    return (await open_transactions(client, brokers, tps))[0]


async def open_transactions(
    client: ClusterClient, brokers: Collection[int], tps: Collection[TopicPartition]
) -> tuple[list[Hanging], list[Hanging]]:
    """Those that nobody will end, and those that their coordinators have still to end. Raises ProtocolError
    while a broker does not say what it coordinates."""
    stable, _ = await readable_ends(client, tps)
    ends, _ = await readable_ends(client, stable.keys(), Isolation.READ_UNCOMMITTED)
    waiting = [tp for tp, end in ends.items() if stable[tp] < end]
    before = await _open(client, waiting)
    if not before:
        return [], []
    ids = sorted({one.producer_id for one in before})
    known: dict[int, str] = {}
    ends_here: set[tuple[int, TopicPartition]] = set()
    for node in brokers:
        listed = await client.send_to(node, ListTransactionsRequest(producer_id_filters=ids))
        if listed.error_code:
            raise failure(listed.error_code, f"transactions that broker {node} coordinates")
        names = {row.transactional_id: row.producer_id for row in listed.transaction_states}
        known |= {producer: name for name, producer in names.items()}
        request = DescribeTransactionsRequest(transactional_ids=list(names))
        for row in (await client.send_to(node, request)).transaction_states if names else ():
            if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                continue
            if row.error_code:
                raise failure(row.error_code, f"transactional id {row.transactional_id}")
            ends_here |= {
                (row.producer_id, TopicPartition(topic.topic, n))
                for topic in row.topics
                for n in topic.partitions
            }
    left = {one for one in before if (one.producer_id, one.tp) not in ends_here}
    after = await _open(client, {one.tp for one in left})

    def told(found: set[Open]) -> list[Hanging]:
        return [
            Hanging(one.tp, one.start, one.producer_id, known.get(one.producer_id, ""), one.last_ms)
            for one in sorted(found)
        ]

    return told(left & after), told(before - left)


async def _open(client: ClusterClient, tps: Collection[TopicPartition]) -> set[Open]:
    """By their leaders; partitions without one, or that may not be asked about, have none."""

    async def at(
        node: int, part: dict[TopicPartition, None]
    ) -> dict[TopicPartition, set[Open] | BaseException]:
        topics = [
            TopicRequest(name=name, partition_indexes=[tp.partition for tp, _ in rows])
            for name, rows in by_topic(part).items()
        ]
        answer = await client.send_to(node, DescribeProducersRequest(topics=topics), retry=NO_RETRIES)
        return {
            (tp := TopicPartition(topic.name, row.partition_index)): failure(row.error_code, tp)
            if row.error_code
            else {
                Open(tp, one.producer_id, one.current_txn_start_offset, one.last_timestamp)
                for one in row.active_producers
                if one.current_txn_start_offset >= 0
            }
            for topic in answer.topics
            for row in topic.partitions
        }

    if not tps:
        return set()
    found = await client.spread_once(dict.fromkeys(tps), at)
    unsupported = next((one for one in found.values() if isinstance(one, NotSupportedError)), None)
    if unsupported is not None:
        raise unsupported
    return {one for rows in found.values() if isinstance(rows, set) for one in rows}
