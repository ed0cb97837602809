"""Which broker leads each partition that is written to, and whether a new leader has what was acknowledged.

Owns looking leaders up, the ids of their topics, and the question to a leader of a later epoch (KIP-320):
nothing is written to it before it has said that its log holds all of it. One that does not answer holds up
its own partitions only (I10).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from itertools import starmap
from typing import Final, Protocol

from protocol.client import NO_RETRIES, ClusterClient, NotSupportedError
from protocol.client.mirror_calls import EpochEnd
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import ZERO_UUID, TopicPartition
from transfer.kafka.away import Away
from transfer.kafka.duty import Broken, on_duty
from transfer.kafka.lane import ProduceLane
from transfer.kafka.readable import Seen, seen_until

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_ANSWER_S = 5.0
_AT_A_TIME = 16

NOT_ASKED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,  # asked for by brokers before 2.3
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Who may not ask, or whom nobody answers, writes as without the question."""

_NEVER_TOLD: Final = NOT_ASKED | {ErrorCode.OFFSET_OUT_OF_RANGE}
"""Nor does anybody tell of what retention took while it was asked for, or of what no log reaches."""


class Listener(Protocol):
    """What a sink is told."""

    async def identify(self, lanes: list[ProduceLane]) -> None:
        """Gives them their producers, before their leaders are known. Raises ProtocolError."""

    def led(self, lane: ProduceLane) -> None:
        """The lane has its leader."""

    def replaced(self, lane: ProduceLane) -> None:
        """Another topic has taken the name of its topic."""

    def lost(self, lane: ProduceLane, why: str) -> None:
        """Its leader does not have all that was acknowledged."""


class Leaders:
    """Of all lanes of a sink, until `aclose`."""

    def __init__(
        self,
        client: ClusterClient,
        lanes: Mapping[TopicPartition, ProduceLane],
        listener: Listener,
        broken: Broken,
    ) -> None:
        self._client = client
        self._lanes = lanes
        self._listener = listener
        self._broken = broken
        self._topic_ids: dict[str, bytes] = {}
        self._stale = asyncio.Event()
        self._away = Away("target")
        self._asked: set[ProduceLane] = set()
        """Whose new leader was asked what it has."""
        self._asking: set[asyncio.Future[None]] = set()
        self._keeper = on_duty(self._keep(), broken)

    def stir(self) -> None:
        """There is a lane without a leader."""
        self._stale.set()

    def topic_id(self, name: str) -> bytes:
        """As brokers told last; zero: none did."""
        return self._topic_ids.get(name, ZERO_UUID)

    async def aclose(self) -> None:
        """Ends all looking."""
        tasks = [self._keeper, *self._asking]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            await self._stale.wait()
            self._stale.clear()
            await self._look_up(self._leaderless())
            if self._leaderless():
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
                self._stale.set()
            else:
                pause = _FIRST_PAUSE_S

    def _leaderless(self) -> list[ProduceLane]:
        lanes = self._lanes.values()
        return [lane for lane in lanes if lane.leader < 0 and lane.error is None and lane not in self._asked]

    async def _look_up(self, lanes: list[ProduceLane]) -> None:
        # What is on its way to the leader of before may still be acknowledged by it: nobody would ask for it.
        lanes = [lane for lane in lanes if not lane.awaited]
        if not lanes:
            return
        try:
            metadata = await self._client.metadata({lane.tp.topic for lane in lanes})
            await self._listener.identify(lanes)
        except ProtocolError as error:
            self._away.failed(error)
            return
        self._away.answers()
        doubted: dict[int, dict[ProduceLane, int]] = {}
        for lane in lanes:
            topic = metadata.topics.get(lane.tp.topic)
            partition = topic.partitions.get(lane.tp.partition) if topic is not None else None
            if topic is None or topic.error or partition is None or partition.leader < 0:
                continue
            if ZERO_UUID not in (lane.topic_id, topic.topic_id) and lane.topic_id != topic.topic_id:
                self._listener.replaced(lane)
                continue
            if topic.topic_id != ZERO_UUID:  # brokers that are being upgraded do not all know it
                self._call_topic(lane.tp.topic, topic.topic_id)
                lane.topic_id = topic.topic_id
            if lane.topic_id != ZERO_UUID and -1 < partition.leader_epoch < lane.written.epoch:
                continue  # this broker has not heard of the leader yet, and names one that was replaced
            # Behind what was committed may stand what the link has aborted, without its marker.
            may_be_open = lane.transactional and partition.leader_epoch > lane.written.epoch >= 0
            if may_be_open or lane.written.doubts(partition.leader_epoch):
                doubted.setdefault(partition.leader, {})[lane] = partition.leader_epoch
            else:
                self._led(lane, partition.leader, partition.leader_epoch)
        for node, some in doubted.items():
            self._ask(node, some)

    def _led(self, lane: ProduceLane, node: int, epoch: int) -> None:
        lane.written.led_by(epoch)
        lane.leader = node
        self._listener.led(lane)

    def _call_topic(self, name: str, topic_id: bytes) -> None:
        """Notes a topic's id. Partitions of the one that had the name before are given up: their requests
        would go into the new one, and a broker that knows nothing of a producer takes any sequence."""
        before, self._topic_ids[name] = self._topic_ids.get(name), topic_id
        if before in (None, topic_id):
            return
        for lane in list(self._lanes.values()):
            if lane.tp.topic == name and lane.topic_id not in (ZERO_UUID, topic_id):
                self._listener.replaced(lane)

    def _ask(self, node: int, lanes: dict[ProduceLane, int]) -> None:
        self._asked |= lanes.keys()

        async def ask() -> None:
            try:
                await self._compare(node, lanes)
            finally:
                self._asked -= lanes.keys()
            if self._leaderless():
                await asyncio.sleep(_FIRST_PAUSE_S)
                self._stale.set()

        task = on_duty(ask(), self._broken)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _compare(self, node: int, lanes: dict[ProduceLane, int]) -> None:
        """Has those go on whose leader has all of it. The others stay without, or have lost something."""
        wanted = {lane.tp: (lane.written.epochs.last, epoch) for lane, epoch in lanes.items()}
        answers: Mapping[TopicPartition, EpochEnd | KafkaError]
        try:
            async with asyncio.timeout(_ANSWER_S):
                answers = await self._client.epoch_ends_at(node, wanted)
        except NotSupportedError:  # brokers before 0.11
            answers = dict.fromkeys(wanted, KafkaError(ErrorCode.UNSUPPORTED_VERSION))
        except (ProtocolError, TimeoutError):
            return
        settled = {lane.tp: lane.written.settled_end for lane in lanes if lane.transactional}
        readable = await self._readable(settled)
        for lane, epoch in lanes.items():
            answer = answers.get(lane.tp)
            if answer is None or self._lanes.get(lane.tp) is not lane or lane.error is not None:
                continue
            if isinstance(answer, KafkaError):
                if answer.code in NOT_ASKED:
                    self._led(lane, node, epoch)
            elif not lane.written.kept(*answer):
                self._listener.lost(lane, _told(lane, node, answer))
            elif lane.tp not in settled:
                self._led(lane, node, epoch)
            elif lane.tp in readable:
                self._seen(lane, node, epoch, readable[lane.tp])

    def _seen(self, lane: ProduceLane, node: int, epoch: int, seen: Seen) -> None:
        if seen.until < lane.written.settled_end:
            self._listener.lost(lane, _hidden(lane, node, seen.until))
        elif seen.is_open and lane.written.is_settled:
            self._listener.lost(lane, _open(lane, node))
        else:
            self._led(lane, node, epoch)

    async def _readable(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, Seen]:
        """Up to where readers of committed records see what is before these offsets. Partitions that nobody
        has told of yet are left out: they are asked about again, and hold up none of the others."""
        room = asyncio.Semaphore(_AT_A_TIME)
        found: dict[TopicPartition, Seen] = {}

        async def one(tp: TopicPartition, end: int) -> None:
            async with room:
                try:
                    found[tp] = await seen_until(self._client, tp, end, retry=NO_RETRIES)
                except KafkaError as error:
                    if error.code in _NEVER_TOLD:
                        found[tp] = Seen(end, is_open=False)
                except ProtocolError:
                    return  # asked again

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                await asyncio.gather(*starmap(one, ends.items()))
        return found


def _hidden(lane: ProduceLane, node: int, end: int) -> str:
    return (
        f"broker {node} leads now; of what was committed up to offset {lane.written.settled_end}"
        f" readers may see only what is before {end}: a transaction is open there, or was aborted"
    )


def _open(lane: ProduceLane, node: int) -> str:
    """What the link has aborted, and its marker is lost: the next commit of its producer would end it too."""
    return (
        f"broker {node} leads now and has a transaction open behind what was committed up to offset"
        f" {lane.written.settled_end}"
    )


def _told(lane: ProduceLane, node: int, answer: EpochEnd) -> str:
    return (
        f"broker {node} leads now and may not have all that was acknowledged up to offset"
        f" {lane.written.end}: leader epoch {answer.epoch} ended at {answer.end} in its log"
    )
