"""A new leader of a transactional lane is asked what readers may not see, and what becomes of no answer."""

import asyncio

import pytest

from protocol.client import ConnectionLostError
from protocol.client.log_calls import Fetched
from protocol.client.metadata import Metadata, PartitionMetadata, TopicMetadata
from protocol.client.mirror_calls import EpochEnd
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition
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
    """Leads the partition by a new epoch and has all that was written. Fetches get `answers` in turn."""

    def __init__(self, *answers):
        self.answers = list(answers)

    async def metadata(self, topics):
        partition = PartitionMetadata(NODE, EPOCH, (NODE,), (NODE,))
        return Metadata(
            "c", 1, topics={"t": TopicMetadata("t", b"t" * 16, ErrorCode.NONE, False, {0: partition})}
        )

    async def epoch_ends_at(self, node, wanted):
        return dict.fromkeys(wanted, EpochEnd(EPOCH - 1, END))

    async def fetch(self, tp, offset, **_):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        stable, high_watermark = answer
        return Fetched(tp, memoryview(b""), high_watermark, stable, 0)


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


async def asked(*answers):
    heard = Heard()
    lane = ProduceLane(TP, gate=Gate(), written=Written(Epochs([(EPOCH - 1, 0)]), END))
    leaders = Leaders(Cluster(*answers), {TP: lane}, heard, heard.broken)
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
    ("stable", "high_watermark", "why"),
    [(END - 10, END + 5, f"only what is before {END - 10}"), (END, END + 5, "a transaction open behind")],
)
async def test_what_is_hidden_is_lost(stable, high_watermark, why):
    heard, told = await asked((stable, high_watermark))
    assert heard == "lost"
    assert why in told
