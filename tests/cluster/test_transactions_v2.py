"""Transactions of version 2 (KIP-890), request by request: each end raises the epoch, so what comes late is
known as late. Compared with Apache Kafka (ISTHMUS_ORACLE=1).
"""

import asyncio
from collections.abc import Iterator

import pytest

from protocol.errors import ErrorCode
from protocol.messages.api_versions_request import ApiVersionsRequest
from tests.support.sides import SIDES, Side, StartSide
from tests.support.transactions import raw_fetch
from tests.support.transactions_v2 import BOUND_S, SETTINGS, V1, Identity, committed, create, raw_producer

pytestmark = pytest.mark.cluster
NONE = ErrorCode.NONE


@pytest.fixture(params=SIDES, scope="module")
def side(request: pytest.FixtureRequest, start_side: StartSide) -> Iterator[Side]:
    with start_side(request.param, "txn-v2", SETTINGS) as side:
        yield side


@pytest.mark.parametrize("version", [3, 4])
async def test_clients_read_the_level_in_api_versions(side: Side, version: int) -> None:
    connection = await side.connect()
    try:
        request = ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")
        answer = await connection.send(request, version)
    finally:
        await connection.close()
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    assert finalized["transaction.version"] == 2
    assert answer.finalized_features_epoch >= 0
    assert supported.get("transaction.version") == ((0, 2) if version >= 4 else None), "KAFKA-17492"


async def test_a_course_without_adding_partitions(side: Side) -> None:
    await create(side, "course")
    async with raw_producer(side, "course") as made:
        first = await made.begin()
        assert await made.produce("course", "a", 0) is NONE
        assert await made.produce("course", "b", 1) is NONE
        assert await made.end(True) == (NONE, first.producer_id, first.epoch + 1)
        assert await made.produce("course", "c", 0) is NONE
        assert await made.end(False) == (NONE, first.producer_id, first.epoch + 2)
        assert await made.produce("course", "d", 0) is NONE
        assert (await made.end(True)).code is NONE
    assert await committed(side, "course", "a", "b", "d") == ["a", "b", "d"]


@pytest.mark.parametrize("commit", [True, False])
async def test_a_repeated_end_is_answered_alike_and_its_opposite_refused(side: Side, commit: bool) -> None:
    topic = f"repeated-{commit}"
    await create(side, topic)
    async with raw_producer(side, topic) as made:
        before = await made.begin()
        assert await made.produce(topic, "a", 0) is NONE
        answers = [await made.end(commit, identity=before) for _ in range(3)]
        assert answers == [(NONE, before.producer_id, before.epoch + 1)] * 3
        refused = await made.end(not commit, identity=before)
        assert refused == (ErrorCode.INVALID_TXN_STATE, -1, -1)


@pytest.mark.parametrize("commit", [True, False])
async def test_a_late_end_never_ends_the_next_transaction(side: Side, commit: bool) -> None:
    """KAFKA-17754, over whatever connection it comes."""
    topic = f"late-{commit}"
    await create(side, topic)
    async with raw_producer(side, topic) as made, raw_producer(side, topic) as late:
        before = await made.begin()
        assert await made.produce(topic, "a", 0) is NONE
        assert (await made.end(commit)).code is NONE
        assert await made.produce(topic, "b", 0) is NONE
        for each in (made, late):
            found = await each.end(commit, identity=before, follow=False)
            assert found.code is ErrorCode.PRODUCER_FENCED
        connection = await side.connect()
        try:
            open_ = await raw_fetch(connection, topic, 12, "read_committed")
            assert open_.last_stable_offset < open_.high_watermark
        finally:
            await connection.close()
        assert (await made.end(True)).code is NONE
    expected = ["a", "b"] if commit else ["b"]
    assert await committed(side, topic, *expected) == expected


async def test_a_late_batch_is_refused(side: Side) -> None:
    await create(side, "late-batch")
    async with raw_producer(side, "late-batch") as made:
        before = await made.begin()
        assert await made.produce("late-batch", "a", 0) is NONE
        assert (await made.end(True)).code is NONE
        assert (await made.end(True, identity=before)).code is NONE, "answered once the markers are written"
        late = await made.produce("late-batch", "b", 1, identity=before)
        assert late is ErrorCode.INVALID_PRODUCER_EPOCH
        ahead = Identity(made.identity.producer_id, made.identity.epoch + 1)
        assert await made.produce("late-batch", "c", 0, identity=ahead) is ErrorCode.INVALID_PRODUCER_EPOCH
        stranger = Identity(made.identity.producer_id + 500_000, 0)
        found = await made.produce("late-batch", "d", 0, identity=stranger)
        assert found is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await committed(side, "late-batch", "a") == ["a"]


async def test_nothing_may_be_aborted_and_not_committed(side: Side) -> None:
    await create(side, "nothing")
    async with raw_producer(side, "nothing") as made:
        start = await made.begin()
        assert (await made.end(True)).code is ErrorCode.INVALID_TXN_STATE
        assert await made.end(False) == (NONE, start.producer_id, start.epoch + 1)
        assert (await made.end(True)).code is ErrorCode.INVALID_TXN_STATE
        assert await made.end(False) == (NONE, start.producer_id, start.epoch + 2)
        before = made.identity
        assert await made.produce("nothing", "a", 0) is NONE
        assert (await made.end(True)).code is NONE
        assert (await made.end(False, identity=before)).code is ErrorCode.INVALID_TXN_STATE
        assert await made.end(False) == (NONE, start.producer_id, start.epoch + 4)
        ahead = Identity(start.producer_id, made.identity.epoch + 1)
        assert (await made.end(False, identity=ahead)).code is ErrorCode.PRODUCER_FENCED
        stranger = Identity(start.producer_id + 500_000, 0)
        assert (await made.end(False, identity=stranger)).code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_producers_of_version_1_go_on_as_before(side: Side) -> None:
    await create(side, "old")
    async with raw_producer(side, "old") as made:
        start = await made.begin()
        for number in range(2):
            assert await made.add("old") is NONE
            assert await made.produce("old", str(number), number, version=9) is NONE
            assert (await made.end(True, version=V1)).code is NONE
        assert made.identity == start
        assert (await made.end(True, version=V1)).code is NONE, "repeated"
        assert (await made.end(False, version=V1)).code is ErrorCode.INVALID_TXN_STATE
        # The same id, by a client of version 2 from now on, and back again.
        assert await made.produce("old", "2", 2) is NONE
        assert await made.end(True) == (NONE, start.producer_id, start.epoch + 1)
        assert await made.add("old") is NONE
        assert await made.produce("old", "3", 0, version=9) is NONE
        assert (await made.end(True, version=V1)).code is NONE
    assert await committed(side, "old", "0", "1", "2", "3") == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("version", "code"),
    [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
async def test_batches_of_version_1_need_their_partition_added(
    side: Side, version: int, code: ErrorCode
) -> None:
    topic = f"unadded-{version}"
    await create(side, topic, topic + "-other")
    async with raw_producer(side, topic) as made:
        await made.begin()
        assert await made.produce(topic, "a", 0, version=version) is code
        assert await made.add(topic + "-other") is NONE
        assert await made.produce(topic, "a", 0, version=version) is code
        assert await made.add(topic) is NONE
        assert await made.produce(topic, "a", 0, version=version) is NONE
        assert (await made.end(False, version=V1)).code is NONE


async def test_a_new_instance_ends_an_open_transaction(side: Side) -> None:
    """That takes one epoch, the next instance has the second."""
    await create(side, "taken")
    async with raw_producer(side, "taken") as old, raw_producer(side, "taken") as new:
        start = await old.begin()
        assert await old.produce("taken", "a", 0) is NONE
        assert await new.try_init() is ErrorCode.CONCURRENT_TRANSACTIONS
        assert await new.begin() == (start.producer_id, start.epoch + 2)
        assert (await old.end(True)).code is ErrorCode.PRODUCER_FENCED
        assert await old.produce("taken", "b", 1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.try_init(expected=old.identity) is ErrorCode.PRODUCER_FENCED
        assert await new.produce("taken", "c", 0) is NONE
        assert (await new.end(True)).code is NONE
    assert await committed(side, "taken", "c") == ["c"]


async def test_the_same_instance_may_ask_for_an_epoch_after_an_end(side: Side) -> None:
    """KIP-360: it does not know whether its end was decided, and asks with the epoch it has."""
    await create(side, "asks")
    async with raw_producer(side, "asks") as made:
        before = await made.begin()
        assert await made.produce("asks", "a", 0) is NONE
        assert (await made.end(True)).code is NONE
        assert await made.begin(expected=before) == made.identity
        assert await made.begin(expected=made.identity) == (before.producer_id, before.epoch + 2)


async def test_what_lasts_too_long_is_ended(side: Side) -> None:
    await create(side, "slow")
    async with raw_producer(side, "slow") as made:
        start = await made.begin(timeout_ms=500)
        assert await made.produce("slow", "a", 0) is NONE
        connection = await side.connect()
        try:
            async with asyncio.timeout(BOUND_S):
                while True:
                    found = await raw_fetch(connection, "slow", 12, "read_committed")
                    if found.last_stable_offset == found.high_watermark == 2:
                        break
                    await asyncio.sleep(0.05)
        finally:
            await connection.close()
        assert (await made.end(True)).code is ErrorCode.INVALID_TXN_STATE
        assert await made.produce("slow", "b", 1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await made.end(False) == (NONE, start.producer_id, start.epoch + 1)
        assert await made.produce("slow", "c", 0) is NONE
        assert (await made.end(True)).code is NONE
        assert await made.begin() == (start.producer_id, start.epoch + 3)
    assert await committed(side, "slow", "c") == ["c"]
