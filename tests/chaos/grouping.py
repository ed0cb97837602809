"""Clients that read as members of a group: those that commit what they read, and those that consume,
transform and produce in transactions (KIP-447).

A member begins where the group's committed position is and says so to the history; what it was given before a
rebalance that came in the middle is dropped.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.chaos.clients import CALL_S, INPUT, OUTPUT, Client, told
from tests.chaos.history import Commit, Outcome, Place, Poll, Start
from tests.chaos.reading import by_place, consumer_of
from tests.chaos.writing import abort, end, transactional_producer

COMMITTERS, TRANSFORMERS = "chaos-g", "chaos-x"
_LOOK_UP_S = 10.0
_GIVEN_BACK_S = 5.0
_BATCH = 200


class Member:
    """One member of a group, subscribed to the input."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._fresh: set[Place] = set()
        self._assignments = 0
        self.consumer = consumer_of(
            client.bootstrap,
            group,
            committed_only=True,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            max_poll_interval_ms=60_000,
            auto_offset_reset="earliest",
        )
        self.consumer.subscribe([INPUT], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._assignments += 1
        at = time.monotonic()
        known = {Place(each.topic, each.partition) for each in partitions}
        self._fresh = known
        self._client.beat()
        if not partitions:
            consumer.assign(partitions)
            return
        try:
            positions = consumer.committed(partitions, timeout=_LOOK_UP_S)
        except KafkaException:
            consumer.assign(partitions)  # the client looks itself, and nobody knows what it found
            return
        for each in positions:
            if each.error is not None:
                continue
            each.offset = max(0, each.offset)
            place = Place(each.topic, each.partition)
            self._client.ledger.history.starts.append(
                Start(self._group, self._client.name, place, each.offset, at)
            )
        consumer.assign([each for each in positions if each.error is None] or partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._assignments += 1
        consumer.unassign()

    def read(self) -> dict[Place, list[tuple[int, int]]]:
        """What one round of polls gave and still belongs to this member."""
        messages: list[Message] = []
        wait_s = 0.3
        while len(messages) < _BATCH:
            before = self._assignments
            message = self.consumer.poll(wait_s)
            if self._assignments != before:
                messages = []
            if message is None:
                break
            messages.append(message)
            wait_s = 0.0
        at = time.monotonic()
        found = by_place(messages)
        for place, records in found.items():
            self._client.ledger.history.polls.append(
                Poll(
                    self._client.name,
                    place,
                    records,
                    committed_only=True,
                    positioned=place in self._fresh,
                    at=at,
                    group=self._group,
                )
            )
            self._fresh.discard(place)
        return found

    def leave(self) -> None:
        """Gives everything back first, while the group still answers. A revoke callback within `close` may
        find that the group has ended: librdkafka never answers its `unassign` then (issues 4041, 4884), and
        confluent-kafka waits for that with the interpreter's lock, so that every thread stands still.
        """
        self.consumer.unsubscribe()
        deadline = time.monotonic() + _GIVEN_BACK_S
        while self.consumer.assignment() and time.monotonic() < deadline:
            self.consumer.poll(0.1)
        self.consumer.close()

    def committed(self, positions: list[TopicPartition]) -> None:
        """These were acknowledged."""
        at = time.monotonic()
        self._client.ledger.history.commits += [
            Commit(self._group, Place(each.topic, each.partition), each.offset, at) for each in positions
        ]


def positions_after(found: dict[Place, list[tuple[int, int]]]) -> list[TopicPartition]:
    return [TopicPartition(*place, records[-1][0] + 1) for place, records in found.items()]


def commit(client: Client) -> None:
    """Reads and commits; now and then it leaves in the middle, without a commit."""
    member = Member(client, COMMITTERS)
    try:
        while client.goes_on:
            found = member.read()
            if client.chance.random() < 0.002:
                return
            if not found:
                continue
            client.beat()
            try:
                told = member.consumer.commit(offsets=positions_after(found), asynchronous=False)
            except KafkaException:
                return  # a new member goes on from what is committed
            member.committed([each for each in told or [] if each.error is None])
    finally:
        member.leave()


def transform(client: Client) -> None:
    """Each record of the input becomes one of the output, with the group's position in one transaction."""
    producer = transactional_producer(client)
    member = Member(client, TRANSFORMERS)
    try:
        while client.goes_on:
            found = member.read()
            if found and not _transform(client, producer, member, found):
                return
    finally:
        member.leave()


def _transform(
    client: Client, producer: Producer, member: Member, found: dict[Place, list[tuple[int, int]]]
) -> bool:
    """False: it was aborted, and a new member has to read again."""
    number = client.ledger.begin()
    producer.begin_transaction()
    name = f"{TRANSFORMERS}/{client.name}"
    for place, records in found.items():
        for _, value in records:
            target = Place(OUTPUT, place.partition)
            send = client.ledger.send(name, target, transaction=number, source=value)
            producer.produce(
                OUTPUT, str(send.value).encode(), partition=target.partition, on_delivery=told(send)
            )
    positions = positions_after(found)
    client.beat()
    try:
        producer.send_offsets_to_transaction(positions, member.consumer.consumer_group_metadata(), CALL_S)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        abort(client, producer, number)
        return False
    done = end(client, producer, number, commit=client.chance.random() < 0.95)
    if done.outcome is not Outcome.DONE:
        return False
    member.committed(positions)
    return True
