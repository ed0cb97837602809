"""Transactions that nobody will end: readers of committed records, and so the link, wait at them for ever.

Owns finding them, as `kafka-transactions find-hanging` does (KIP-664), and their findings. Apache Kafka's
coordinator takes a partition that has no leader when markers are to be written for deleted, and forgets them.
What settles it is not age: a transaction is open in a partition, its coordinator says that it has nothing
more to write there, and afterwards it is still open.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

from protocol.client import NO_RETRIES, ClientError, ClusterClient, Isolation, NotSupportedError
from protocol.client import AclOperation as Op
from protocol.client.failures import failure
from protocol.client.spread import by_topic
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from protocol.messages.list_transactions_request import ListTransactionsRequest
from protocol.types import TopicPartition
from replicator.ends import readable_ends
from replicator.preflight.facts import Facts, Hanging, Side
from replicator.preflight.findings import Finding, Level, named
from replicator.settings import ClusterEnd

_CHECK = "hanging transactions"
_STATE = "__transaction_state"
_ANYTHING = (Op.CLUSTER_ACTION, Op.ALTER, Op.DESCRIBE)
_LONGEST_MS = 900_000
"""Kafka's default of transaction.max.timeout.ms."""
_AT_MOST = 10
"""Findings of one side; the rest are counted."""


class Open(NamedTuple):
    """A transaction that a partition's leader takes for open, from offset `start` on."""

    tp: TopicPartition
    producer_id: int
    start: int
    last_ms: int


async def ask_hanging(client: ClusterClient, side: Side, topics: Collection[str]) -> None:
    """Fills `side.hanging`. What cannot be asked is no finding: brokers before Kafka 3.0 tell nothing."""
    tps = [
        TopicPartition(name, n)
        for name in topics
        if name in side.topics
        for n in side.topics[name].partitions
    ]
    try:
        side.hanging = await hanging(client, sorted(side.brokers), tps)
    except NotSupportedError:
        return
    except (ClientError, KafkaError) as error:
        side.refused["which transactions hang"] = str(error)


async def hanging(
    client: ClusterClient, brokers: Collection[int], tps: Collection[TopicPartition]
) -> list[Hanging]:
    """Of these partitions. Raises ProtocolError while a broker does not say what it coordinates."""
    stable, _ = await readable_ends(client, tps)
    ends, _ = await readable_ends(client, stable.keys(), Isolation.READ_UNCOMMITTED)
    waiting = [tp for tp, end in ends.items() if stable[tp] < end]
    before = await _open(client, waiting)
    if not before:
        return []
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
    return [
        Hanging(one.tp, one.start, one.producer_id, known.get(one.producer_id, ""), one.last_ms)
        for one in sorted(left & after)
    ]


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


def hanging_transactions(facts: Facts) -> Iterator[Finding]:
    """Of both sides, each with the command that ends it; and what makes them likely at the source."""
    for side, end in ((facts.source, facts.settings.source), (facts.target, facts.settings.target)):
        hang = [one for one in side.hanging if one.known_as or _is_sure(side, one)]
        yield from (_one(side, end, one) for one in hang[:_AT_MOST])
        if left := hang[_AT_MOST:]:
            where = tuple(f"{one.tp} from {one.start}" for one in left)
            what = f"{len(left)} more hang: {named(where)}"
            yield Finding(Level.ERROR, _CHECK, side.alias, what, "end them in the same way", where)
    state = facts.source.topics.get(_STATE)
    copies = min((len(one.replicas) for one in state.partitions.values()), default=0) if state else 0
    if copies == 1 and len(facts.source.brokers) > 1:
        yield Finding(
            Level.WARNING,
            _CHECK,
            facts.source.alias,
            f"{_STATE} has partitions with one replica: if that disk is lost, transactions that are open then"
            " stay open, and the link waits at them for ever",
            "give it more replicas (kafka-reassign-partitions)",
        )


def _is_sure(side: Side, one: Hanging) -> bool:
    """Of one that no coordinator shows: they leave out what this user may not DESCRIBE, without a word. Who
    may do anything with the cluster sees all; else it has to be older than any transaction may become."""
    if side.cluster_rights.bits is not None and not side.cluster_rights.lacks(*_ANYTHING):
        return True
    longest_ms = int(side.defaults.get("transaction.max.timeout.ms", _LONGEST_MS))
    return time.time() * 1000 - one.last_ms > longest_ms


def _one(side: Side, end: ClusterEnd, one: Hanging) -> Finding:
    who = (
        f"the coordinator of {one.known_as} has nothing more to write there"
        if one.known_as
        else "no coordinator that this user may ask knows its producer"
    )
    return Finding(
        Level.ERROR if one.known_as else Level.WARNING,
        _CHECK,
        side.alias,
        f"a transaction of producer {one.producer_id} is open in {one.tp} from offset {one.start} on, and"
        f" {who}: readers of committed records wait there for ever",
        f"kafka-transactions.sh --bootstrap-server {end.bootstrap} abort --topic {one.tp.topic}"
        f" --partition {one.tp.partition} --start-offset {one.start}. Whether it was to be committed nobody"
        " knows any more: read its records without isolation.level=read_committed first, if they matter",
        (str(one.tp),),
    )
