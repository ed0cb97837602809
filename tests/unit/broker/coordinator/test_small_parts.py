"""Java's hash, deadlines, subscriptions, producer ids."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.deadlines import Deadlines
from broker.coordinator.groups.subscription import subscribed_topics
from broker.coordinator.java_hash import java_string_hash, partition_for
from broker.coordinator.producer_ids import ProducerIds
from protocol.codec import dumps
from protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription


@pytest.mark.parametrize(
    ("text", "expected"),  # printed by Java 17
    [
        ("", 0),
        ("hello", 99162322),
        ("consumer-group", -1738392088),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),
        ("groupe-d'\u00e9t\u00e9", -1188469836),
        ("a\U00010000b", 57775201),
        ("\ud800", 55296),
    ],
)
def test_java_hash(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_the_hash_without_a_positive_counterpart_goes_to_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 22
    assert partition_for("consumer-group", 50) == 38


@given(st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 50))), max_size=200))
def test_deadlines_behave_like_a_sorted_dictionary(steps: list[tuple[int, int | None]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    model: dict[int, int] = {}
    for key, at in steps:
        if at is None:
            deadlines.cancel(key)
            model.pop(key, None)
        else:
            deadlines.set(key, at)
            model[key] = at
        assert deadlines.next_ms() == min(model.values(), default=None)
        assert len(deadlines) == len(model)
    popped = []
    while (key_due := deadlines.pop_due(25)) is not None:
        popped.append(model.pop(key_due))
    assert popped == sorted(popped)
    assert all(at > 25 for at in model.values())
    assert deadlines.next_ms() == min(model.values(), default=None)


def test_moving_a_deadline_away_does_not_grow_the_heap() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for at in range(10_000):
        deadlines.set("m", at)
    assert len(deadlines._heap) == 1
    for number in range(10_000):
        deadlines.set(f"{number}", number)
        deadlines.cancel(f"{number}")
    assert len(deadlines._heap) < 100


def _subscription(*topics: str, version: int = 3) -> bytes:
    body = dumps(ConsumerProtocolSubscription(topics=list(topics)), min(version, 3))
    return struct.pack(">h", version) + body


def test_subscriptions_of_all_versions_and_newer_ones() -> None:
    members = [_subscription("a", "b", version=0), _subscription("c", version=3)]
    assert subscribed_topics("consumer", members) == {"a", "b", "c"}
    assert subscribed_topics("consumer", [_subscription("d", version=9) + b"\x00\x01"]) == {"d"}


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\x00\x01", b"\x00\x00\x7f\xff\xff\xff"])
def test_a_subscription_that_cannot_be_read_protects_everything(metadata: bytes) -> None:
    assert subscribed_topics("consumer", [_subscription("a"), metadata]) is None


def test_other_types_say_nothing_and_nobody_reads_nothing() -> None:
    assert subscribed_topics("connect", [b"\x00\x01"]) is None
    assert subscribed_topics("consumer", []) == frozenset()
    assert subscribed_topics(None, []) == frozenset()


@dataclass(frozen=True)
class _Block:
    first: int
    last: int


async def test_producer_ids_are_unique_over_blocks_and_concurrent_takers() -> None:
    claimed = 0

    async def claim() -> _Block:
        nonlocal claimed
        await asyncio.sleep(0)
        claimed += 1
        return _Block(claimed * 1000, claimed * 1000 + 9)

    ids = ProducerIds(claim)
    assert ids.at_hand() is None
    taken = await asyncio.gather(*(ids.take() for _ in range(25)))
    assert sorted(taken) == [*range(1000, 1010), *range(2000, 2010), *range(3000, 3005)]
    assert claimed == 3
    assert ids.at_hand() == 3005


async def test_a_failed_claim_is_tried_again_by_the_next() -> None:
    answers: list[_Block | None] = [None, _Block(7, 8)]

    async def claim() -> _Block:
        block = answers.pop(0)
        if block is None:
            raise ConnectionError("no ZooKeeper")
        return block

    ids = ProducerIds(claim)
    with pytest.raises(ConnectionError):
        await ids.take()
    assert await ids.take() == 7
