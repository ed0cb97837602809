"""Transactions that nobody will end: readers of committed records, and so the link, wait at them for ever.

Owns what is said of them; they are found in `replicator.hanging`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

from protocol.client import AclOperation as Op
from protocol.client import ClientError, ClusterClient, NotSupportedError
from protocol.errors import KafkaError
from protocol.types import TopicPartition
from replicator.hanging import Hanging, hanging
from replicator.preflight.facts import Facts, Side
from replicator.preflight.findings import Finding, Level, named
from replicator.settings import ClusterEnd

_CHECK = "hanging transactions"
_STATE = "__transaction_state"
_ANYTHING = (Op.CLUSTER_ACTION, Op.ALTER, Op.DESCRIBE)
_LONGEST_MS = 900_000
"""Kafka's default of transaction.max.timeout.ms."""
_AT_MOST = 10
"""Findings of one side; the rest are counted."""


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
