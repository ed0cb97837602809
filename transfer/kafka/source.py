"""A cluster as a source: leaders, topic ids and faults of the partitions that are being read.

Owns where each partition is read and when its trouble is a fact. Fetching is in `fetcher`, the meaning of
answers in `positions`. A topic that was created again under the same name is another lineage: its id is
remembered from the first look-up (or given), and a change is a fault, never a silent continuation.
"""

from __future__ import annotations

import asyncio
import logging

from protocol.client import ClusterClient
from protocol.client.connection import Connection
from protocol.client.metadata import TopicMetadata
from protocol.errors import ErrorCode, ProtocolError
from protocol.types import ZERO_UUID, TopicPartition
from transfer.endpoint import BrokenEndpointError, Chunk, FaultKind, SourceFault
from transfer.epochs import Epochs
from transfer.kafka.away import Away
from transfer.kafka.duty import on_duty
from transfer.kafka.fetcher import Arrival, BrokerFetcher, FetchSettings
from transfer.kafka.positions import Trouble
from transfer.kafka.reading import Reading

_log = logging.getLogger("isthmus.transfer")

_EARLIEST, _LATEST = -2, -1
_LONGEST_PAUSE_S = 2.0


class KafkaSource:
    """`BatchSource` of a cluster. The client stays the caller's; close the source before it."""

    def __init__(self, client: ClusterClient, settings: FetchSettings | None = None) -> None:
        self._client = client
        self._settings = settings or FetchSettings()
        self._readings: dict[TopicPartition, Reading] = {}
        self._arrived: asyncio.Queue[list[Arrival]] = asyncio.Queue(maxsize=2)
        self._fetchers: dict[int, BrokerFetcher] = {}
        self._stale = asyncio.Event()
        self._away = Away("source")
        self._expected: dict[TopicPartition, tuple[bytes, int, Epochs]] = {}
        self._suspects: dict[TopicPartition, float] = {}
        self._broken: BrokenEndpointError | None = None
        self._keeper = on_duty(self._keep_leaders(), self._break)

    def expect(
        self, tp: TopicPartition, topic_id: bytes, epoch: int = -1, epochs: Epochs | None = None
    ) -> None:
        """Binds the next `open` of `tp` to a topic id, to the leader epoch of the last batch before its
        position (-1: not known), and to where epochs before that began."""
        self._expected[tp] = (topic_id, epoch, epochs.copy() if epochs is not None else Epochs())

    async def open(self, tp: TopicPartition, from_offset: int) -> None:
        """Starts reading; the leader is looked up in the background."""
        await self.close(tp)
        topic_id, epoch, epochs = self._expected.pop(tp, (ZERO_UUID, -1, Epochs()))
        now = asyncio.get_running_loop().time()
        self._readings[tp] = Reading(
            tp, from_offset, topic_id=topic_id, last_epoch=epoch, epochs=epochs, heard_at=now
        )
        self._stale.set()

    async def close(self, tp: TopicPartition) -> None:
        """Stops reading; an answer on its way is dropped."""
        reading = self._readings.pop(tp, None)
        if reading is not None:
            reading.closed = True
        self._suspects.pop(tp, None)

    def look_again(self, tp: TopicPartition) -> None:
        """Somebody has seen another topic of its name: a broker that is asked by name (Fetch before v13,
        Kafka 3.1) may go on with that one and say nothing."""
        reading = self._readings.get(tp)
        if reading is not None and reading.leader >= 0:
            reading.leader = -1
            self._stale.set()

    def pause(self, tp: TopicPartition) -> None:
        """Asks for no more until `resume`."""
        reading = self._readings.get(tp)
        if reading is not None:
            reading.paused = True

    def resume(self, tp: TopicPartition) -> None:
        """Undoes `pause`."""
        reading = self._readings.get(tp)
        if reading is not None:
            reading.paused = False
            self._wake(reading.leader)

    async def read(self) -> list[Chunk | SourceFault]:
        """Waits for chunks or faults of open partitions."""
        while True:
            if self._broken is not None:
                raise self._broken
            arrived = await self._arrived.get()
            current = [delivery for reading, delivery in arrived if not reading.closed]
            for reading, delivery in arrived:
                if isinstance(delivery, SourceFault) and not reading.closed:
                    await self.close(reading.tp)
            if current:
                return current

    def reading(self, tp: TopicPartition) -> Reading | None:
        """Position, high watermark and leader of an open partition, for lag and status."""
        return self._readings.get(tp)

    async def aclose(self) -> None:
        """Ends all reading."""
        self._keeper.cancel()
        await asyncio.gather(
            self._keeper, *(fetcher.close() for fetcher in self._fetchers.values()), return_exceptions=True
        )
        self._fetchers.clear()

    def _break(self, error: BrokenEndpointError) -> None:
        self._broken = self._broken or error
        if self._arrived.empty():
            self._arrived.put_nowait([])  # ends the wait of `read`

    def _wake(self, leader: int) -> None:
        fetcher = self._fetchers.get(leader)
        if fetcher is not None:
            fetcher.wake()

    async def _keep_leaders(self) -> None:
        """Looks up leaders whenever a partition has none or its leader turned out to be wrong."""
        pause = 0.05
        while True:
            await self._stale.wait()
            self._stale.clear()
            wanted = [reading for reading in self._readings.values() if reading.leader < 0]
            if wanted:
                await self._look_up(wanted)
            if any(reading.leader < 0 for reading in self._readings.values()):
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
                self._stale.set()
            else:
                pause = 0.05

    async def _look_up(self, wanted: list[Reading]) -> None:
        try:
            metadata = await self._client.metadata({reading.tp.topic for reading in wanted})
        except ProtocolError as error:
            self._away.failed(error)
            return
        self._away.answers()
        for reading in wanted:
            if not reading.closed:
                await self._place(reading, metadata.topics.get(reading.tp.topic))

    async def _place(self, reading: Reading, topic: TopicMetadata | None) -> None:
        if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            await self._suspect(reading, FaultKind.DELETED, reading.position, "the topic does not exist")
            return
        if topic.error:
            return
        if ZERO_UUID not in (reading.topic_id, topic.topic_id) and reading.topic_id != topic.topic_id:
            message = "another topic took the name"
            unseen_s = reading.unseen_s(asyncio.get_running_loop().time())
            fault = SourceFault(reading.tp, FaultKind.RECREATED, reading.position, 0, message, unseen_s)
            await self._arrived.put([(reading, fault)])
            return
        partition = topic.partitions.get(reading.tp.partition)
        if partition is None:  # a topic that was made again with fewer has another id
            return
        self._suspects.pop(reading.tp, None)
        if topic.topic_id != ZERO_UUID:  # brokers that are being upgraded do not all know it
            reading.topic_id = topic.topic_id
        reading.leader_epoch = partition.leader_epoch
        reading.move(partition.leader)
        if reading.leader >= 0:
            self._fetcher(reading.leader).added()

    def _fetcher(self, node: int) -> BrokerFetcher:
        fetcher = self._fetchers.get(node)
        if fetcher is None:

            async def dial(lane: str) -> Connection:
                return await self._client.connection_to(node, lane)

            def readings() -> list[Reading]:
                return [reading for reading in self._readings.values() if reading.leader == node]

            fetcher = self._fetchers[node] = BrokerFetcher(
                dial, self._settings, readings, self._arrived.put, self._trouble, self._break
            )
        return fetcher

    async def _trouble(self, reading: Reading, trouble: Trouble) -> None:
        if trouble is Trouble.STALE:
            reading.leader = -1
            self._stale.set()
        elif trouble is Trouble.ELSEWHERE:
            self._fetcher(reading.leader).added()
        elif trouble is Trouble.OUT_OF_RANGE:
            await self._out_of_range(reading)

    async def _out_of_range(self, reading: Reading) -> None:
        """Decides between retention, truncation and a leader that does not know its own end yet."""
        try:
            first = (await self._client.list_offsets({reading.tp: _EARLIEST}))[reading.tp].offset
            last = (await self._client.list_offsets({reading.tp: _LATEST}))[reading.tp].offset
        except ProtocolError as error:
            _log.warning("source %s-%d: its range is not known: %s", *reading.tp, error)
            return
        if reading.position < first:
            message = f"records {reading.position} to {first - 1} are gone; the log starts at {first}"
            fault = SourceFault(reading.tp, FaultKind.RETENTION, reading.position, first, message)
            await self._arrived.put([(reading, fault)])
        elif reading.position > last:
            message = f"the log ends at {last}, before the position"
            await self._suspect(reading, FaultKind.TRUNCATED, last, message)
        else:
            message = (
                f"its leader gives nothing at offset {reading.position}, though its log goes from {first} to"
                f" {last}: it does not know leader epoch {reading.last_epoch} of what was read before, as"
                " after a restore from an older copy of its disk"
            )
            await self._suspect(reading, FaultKind.FAILED, reading.position, message)

    async def _suspect(self, reading: Reading, kind: FaultKind, resume_offset: int, message: str) -> None:
        """Reports a fault once it has lasted: brokers say such things wrongly while they start."""
        now = asyncio.get_running_loop().time()
        since = self._suspects.setdefault(reading.tp, now)
        if since < reading.heard_at:  # all was well in between
            since = self._suspects[reading.tp] = now
        if now - since >= self._settings.gone_after_s:
            unseen_s = reading.unseen_s(now)
            fault = SourceFault(reading.tp, kind, reading.position, resume_offset, message, unseen_s)
            await self._arrived.put([(reading, fault)])
