"""Clients that write: idempotent producers, plain ones with acks=all or acks=1, and transactions.

A transaction's producer also reads, while it is open, what others and itself have written: nothing of its own
may be among the committed data yet.
"""

from __future__ import annotations

import contextlib
import time

from confluent_kafka import KafkaException, Producer

from tests.chaos.clients import CALL_S, COMMON, INPUT, Client, told
from tests.chaos.history import Outcome, Transaction
from tests.chaos.reading import Reader


def produce(client: Client) -> None:
    """Idempotent, and nothing twice.

    Two things make librdkafka itself write twice, with the next epoch, what a broker may have: messages that
    it gives up after a time, and several requests in flight when the first fails (its issue 4953).
    """
    _write(client, is_exact=True, idempotence=True, in_flight=1, give_up_ms=0)


def produce_in_a_row(client: Client) -> None:
    """Idempotent with five requests in flight, as by default: see `produce` why that may write twice."""
    _write(client, is_exact=False, idempotence=True, in_flight=5, give_up_ms=60_000)


def produce_plainly(client: Client) -> None:
    """acks=all, and retries that may write twice: nothing acknowledged may be lost all the same."""
    _write(client, is_exact=False, idempotence=False, in_flight=5, give_up_ms=60_000)


def produce_to_leader(client: Client) -> None:
    """acks=1: what the leader alone has said is no promise, so none of it is noted as done.

    It goes on writing where followers are away, so that leaders come to hold what nobody else has.
    """
    _write(client, is_exact=False, idempotence=False, in_flight=5, give_up_ms=60_000, acks="1")


def _write(
    client: Client, *, is_exact: bool, idempotence: bool, in_flight: int, give_up_ms: int, acks: str = "all"
) -> None:
    producer = Producer(
        {
            **COMMON,
            "bootstrap.servers": client.bootstrap,
            "client.id": client.name,
            "acks": acks,
            "enable.idempotence": idempotence,
            "max.in.flight.requests.per.connection": in_flight,
            "linger.ms": 1,
            "message.timeout.ms": give_up_ms,
        }
    )
    while client.goes_on:
        send = client.ledger.send(client.name, client.place(), is_exact=is_exact)
        with contextlib.suppress(BufferError):  # full: this one stays unknown, and was not written
            producer.produce(
                INPUT,
                str(send.value).encode(),
                partition=send.place.partition,
                on_delivery=told(send) if acks == "all" else None,
            )
        producer.poll(0)
        time.sleep(client.pause_s)
    producer.flush(CALL_S)


def transactional_producer(client: Client) -> Producer:
    """Initialized: whoever had its name before is fenced."""
    producer = Producer(
        {
            **COMMON,
            "bootstrap.servers": client.bootstrap,
            "transactional.id": f"chaos-{client.name}",
            "transaction.timeout.ms": 10_000,
            "linger.ms": 1,
        }
    )
    producer.init_transactions(CALL_S)
    return producer


def transact(client: Client) -> None:
    producer = transactional_producer(client)
    reader = Reader(client, f"{client.name}-own", committed_only=True)
    try:
        reader.from_end()
        while client.goes_on:
            number = client.ledger.begin()
            producer.begin_transaction()
            for _ in range(client.chance.randrange(1, 6)):
                send = client.ledger.send(client.name, client.place(), transaction=number)
                producer.produce(
                    INPUT, str(send.value).encode(), partition=send.place.partition, on_delivery=told(send)
                )
            if client.chance.random() < 0.2:
                producer.flush(2.0)
                reader.read(0.05)
            end(client, producer, number, commit=client.chance.random() < 0.8)
            time.sleep(client.pause_s)
    finally:
        reader.close()


def end(client: Client, producer: Producer, number: int, *, commit: bool) -> Transaction:
    """An end that was tried and not confirmed leaves the outcome unknown. Raises KafkaException then."""
    transaction = client.ledger.history.transactions[number]
    client.beat()
    try:
        if commit:
            transaction.asked_at = time.monotonic()
            producer.commit_transaction(CALL_S)
            transaction.outcome = Outcome.DONE
            return transaction
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
    abort(client, producer, number)
    return transaction


def abort(client: Client, producer: Producer, number: int) -> None:
    client.beat()
    producer.abort_transaction(CALL_S)
    client.ledger.history.transactions[number].outcome = Outcome.FAILED
