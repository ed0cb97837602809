"""What copying exactly once needs of the target: transactions, and topics of theirs that survive a broker.

Owns these rules, pure, and the one question that they need: whether the link's user may have transactions.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.client import ClusterClient, CoordinatorKind, RetryPolicy
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.end_txn_request import EndTxnRequest
from replicator.preflight.facts import Facts
from replicator.preflight.findings import Finding, Level

_CHECK = "exactly once"
_STATE = "__transaction_state"
_END = 4
_SHORT = RetryPolicy(total_s=5, unknown_topic_s=0)


async def ask_transactions(target: ClusterClient, facts: Facts) -> None:
    """Notes what the target says to a producer with a transactional id of the link's.

    Finding the coordinator needs DESCRIBE. Whether it may WRITE tells the end of a transaction that nobody
    has begun, under an id that no worker has: brokers look at the right first, then know nothing of the id.
    """
    if not facts.settings.exactly_once:
        return
    name = f"{facts.settings.transactional_id}.check"
    target.forget_coordinator(name, CoordinatorKind.TRANSACTION)
    end = EndTxnRequest(transactional_id=name, producer_id=0, producer_epoch=0, committed=False)
    try:
        answer = await target.send_coordinator(
            name, end, CoordinatorKind.TRANSACTION, highest=_END, retry=_SHORT
        )
    except KafkaError as error:
        if error.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED or not error.retriable:
            facts.no_transactions = f"DESCRIBE is missing ({error})"
        return
    if answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        facts.no_transactions = "WRITE is missing (TRANSACTIONAL_ID_AUTHORIZATION_FAILED)"


def transactions(facts: Facts) -> Iterator[Finding]:
    """Of links with `exactly_once` alone."""
    on, target = facts.settings, facts.target
    if not on.exactly_once:
        return
    if facts.no_transactions:
        yield Finding(
            Level.ERROR,
            _CHECK,
            target.alias,
            f"the link may not write in transactions: {facts.no_transactions}",
            "grant it to the link's user: kafka-acls --add --allow-principal User:<link> --operation Write"
            " --operation Describe"
            f" --resource-pattern-type prefixed --transactional-id {on.transactional_id}",
        )
    longest = target.defaults.get("transaction.max.timeout.ms")
    if longest is not None and on.transaction_timeout_s * 1000 > int(longest):
        yield Finding(
            Level.ERROR,
            _CHECK,
            target.alias,
            f"transaction_timeout_s is {on.transaction_timeout_s:g}, its brokers allow {longest} ms",
            f"set transaction_timeout_s to at most {int(longest) / 1000:g}",
        )
    yield from _state(facts)
    yield Finding(
        Level.OK,
        _CHECK,
        target.alias,
        "each record is committed once; readers without isolation.level=read_committed also see what was"
        " aborted (librdkafka reads committed by default, Java's consumer does not)",
        "set isolation.level=read_committed for the consumers of the mirrors",
    )


def _state(facts: Facts) -> Iterator[Finding]:
    target = facts.target
    configured = target.defaults.get("transaction.state.log.min.isr", "1")
    state = target.topics.get(_STATE)
    if state is not None and state.partitions:
        copies = min(len(one.replicas) for one in state.partitions.values())
    else:
        copies = int(target.defaults.get("transaction.state.log.replication.factor", "0"))
        if copies > len(target.brokers):
            yield Finding(
                Level.ERROR,
                _CHECK,
                target.alias,
                f"{_STATE} cannot be made: transaction.state.log.replication.factor is {copies} and there are"
                f" {len(target.brokers)} brokers",
                "set it to what there are, or add brokers",
            )
            return
    need = target.needed_in_sync(configured, copies)
    if copies and need > copies:
        yield Finding(
            Level.ERROR,
            _CHECK,
            target.alias,
            f"{_STATE} has {copies} replicas and transaction.state.log.min.isr is {need}: none ends",
            "give it more replicas (kafka-reassign-partitions)",
        )
    elif copies and len(target.brokers) > 1 and (copies == 1 or need == copies):
        yield Finding(
            Level.WARNING,
            _CHECK,
            target.alias,
            f"{_STATE} has {copies} replicas and transaction.state.log.min.isr is {need}: with one broker"
            " away a part of all links and producers has no transactions",
            "give it one replica more than min.isr (kafka-reassign-partitions)",
        )
