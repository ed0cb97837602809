"""A new leader of a transactional lane is asked what readers may not see, and what becomes of no answer."""

import asyncio

import pytest

from protocol.client import EARLIEST, LATEST, ConnectionLostError, ListedOffset, RetryPolicy
from protocol.client.log_calls import Fetched
from protocol.client.metadata import Metadata, PartitionMetadata, TopicMetadata
from protocol.client.mirror_calls import EpochEnd
from protocol.client.retry import retrying
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition
from tests.support.jumping_loop import run_jumping
from transfer.epochs import Epochs
from transfer.kafka.lane import ProduceLane
from transfer.kafka.leaders import Leaders
from transfer.kafka.written import Written

TP = TopicPartition("t", 0)
NODE, EPOCH, END = 3, 7, 100


class Gate:
    def lets(self, lane, pending):
        return True


class Cluster:
    """Leads the partition by a new epoch and has all that was written. Fetches get `answers` in turn: the
    last stable offset, the high watermark, and where what was aborted began. At first the high watermarks
    that it knows are those in `lags`, and each question for its end tells the next one."""

    def __init__(self, *answers, first=0, lags=()):
        self.answers = list(answers)
        self.first = first
        self.lags = list(lags)

    async def metadata(self, topics):
        partition = PartitionMetadata(NODE, EPOCH, (NODE,), (NODE,))
        return Metadata(
            "c", 1, topics={"t": TopicMetadata("t", b"t" * 16, ErrorCode.NONE, False, {0: partition})}
        )

    async def epoch_ends_at(self, node, wanted):
        return dict.fromkeys(wanted, EpochEnd(EPOCH - 1, END))

    async def offset(self, tp, at, **_):
        if at == EARLIEST:
            return ListedOffset(self.first, -1, -1)
        if self.lags:
            self.lags.pop(0)
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return ListedOffset(END, -1, -1)

    async def fetch(self, tp, offset, **_):
        if offset < self.first:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if self.lags:
            return Fetched(tp, memoryview(b""), self.lags[0], self.lags[0], 0)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        stable, high_watermark, *aborted = answer
        return Fetched(tp, memoryview(b""), high_watermark, stable, 0, tuple((9, one) for one in aborted))


class Heard:
    """What the sink is told."""

    def __init__(self):
        self.first = asyncio.get_running_loop().create_future()

    async def identify(self, lanes):
        pass

    def led(self, lane):
        self.first.set_result(("led", lane.leader))

    def lost(self, lane, why):
        self.first.set_result(("lost", why))

    def broken(self, error):
        self.first.set_result(("broken", str(error)))


async def asked(*answers, written=None, **cluster):
    heard = Heard()
    written = written or Written(Epochs([(EPOCH - 1, 0)]), END)
    lane = ProduceLane(TP, gate=Gate(), written=written)
    leaders = Leaders(Cluster(*answers, **cluster), {TP: lane}, heard, heard.broken)
    try:
        leaders.stir()
        return await asyncio.wait_for(heard.first, 10)
    finally:
        await leaders.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        ConnectionLostError("gone"),
        KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=lambda answer: type(answer).__name__ + str(getattr(answer, "code", "")),
)
async def test_a_leader_that_does_not_answer_is_asked_again(answer):
    assert await asked(answer, answer, (END, END)) == ("led", NODE)
    assert (await asked(answer, (END - 10, END)))[0] == "lost"


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
async def test_what_nobody_can_tell_is_not_waited_for(code):
    assert await asked(KafkaError(code)) == ("led", NODE)


async def test_a_fault_of_our_own_is_not_a_silent_leader():
    """The partition would stand still for ever, and nobody would know why."""
    heard, why = await asked(ValueError("a fault"))
    assert heard == "broken"
    assert "a fault" in why


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((END - 10, END + 5), f"only what is before {END - 10}"),
        ((END + 5, END + 5, END - 20), f"only what is before {END - 20}"),
        ((END, END + 5), "a transaction open behind"),
    ],
    ids=["open", "aborted", "open behind it"],
)
async def test_what_is_hidden_is_lost(answer, why):
    heard, told = await asked(answer)
    assert heard == "lost"
    assert why in told


async def test_what_a_leader_does_not_know_to_be_committed_yet_is_not_hidden():
    """Under load so it is after each planned change of leader: a transaction would be aborted for it."""
    assert await asked((END, END), lags=[END - 10, END - 1]) == ("led", NODE)


async def test_what_is_open_behind_the_high_watermark_that_a_new_leader_knows_is_seen():
    heard, why = await asked((END, END + 5), lags=[END])
    assert heard == "lost"
    assert "a transaction open behind" in why


async def test_what_is_open_is_seen_where_retention_has_taken_all_before_it():
    heard, why = await asked((END, END + 5), first=END)
    assert heard == "lost"
    assert "a transaction open behind" in why
    assert await asked((END + 5, END + 5, END - 20), first=END) == ("led", NODE)


async def test_what_is_open_is_seen_where_nothing_is_committed():
    written = Written(Epochs([(EPOCH - 1, 0)]), 0)
    assert (await asked((0, 5), written=written))[0] == "lost"
    assert await asked((5, 5), written=written) == ("led", NODE)


async def test_a_transaction_of_this_moment_is_its_own():
    """What the lane has written and not committed yet is what is open there."""
    written = Written(Epochs([(EPOCH - 1, 0)]), END - 10)
    written.acknowledged(END - 10, 10)
    assert await asked((END - 10, END), written=written) == ("led", NODE)


class Crowd(Cluster):
    """Only of its last partition the high watermark is known. It is asked as by a client: again and again."""

    async def metadata(self, topics):
        led = PartitionMetadata(NODE, EPOCH, (NODE,), (NODE,))
        partitions = dict.fromkeys(range(41), led)
        topic = TopicMetadata("t", b"t" * 16, ErrorCode.NONE, False, partitions)
        return Metadata("c", 1, topics={"t": topic})

    async def offset(self, tp, at, *, retry=None, **_):
        async def attempt():
            if at == LATEST and tp.partition < 40:
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
            return ListedOffset(0 if at == EARLIEST else END, -1, -1)

        return await retrying(attempt, retry or RetryPolicy())


def test_those_whose_leader_knows_what_is_committed_do_not_wait_for_the_others():
    """However many those are, and however long that takes: a replica that is stuck holds it up (I10)."""

    async def ask():
        heard = Heard()
        lanes = {
            tp: ProduceLane(tp, gate=Gate(), written=Written(Epochs([(EPOCH - 1, 0)]), END))
            for tp in (TopicPartition("t", number) for number in range(41))
        }
        leaders = Leaders(Crowd((END, END)), lanes, heard, heard.broken)
        try:
            leaders.stir()
            async with asyncio.timeout(60):
                assert await heard.first == ("led", NODE)
        finally:
            await leaders.aclose()
        assert [tp.partition for tp, lane in lanes.items() if lane.leader == NODE] == [40]

    run_jumping(ask())
