"""A probe that writes to every broker and reads back, so that each is watched by itself, end to end.

Owns the topic of the probe (`probe_plan` says what it needs), one client for each broker, so that one that
hangs keeps nobody waiting, and the tries of a message until it came back or was given up. What became of the
messages: `probe_ledger`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from monitor.probe_ledger import ProbeLedger
from monitor.probe_plan import Coverage, coverage
from protocol.client import NO_RETRIES, ClusterClient, ConnectError, Metadata, NewTopic
from protocol.client.access import Access
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.records import Record, build_batch
from protocol.types import TopicPartition

_log = logging.getLogger("isthmus.monitor")
TOPIC = "isthmus-probe"
_SETTINGS = {"retention.ms": "3600000", "segment.ms": "3600000", "cleanup.policy": "delete"}
_RETRY_S = 0.5
_OUTSTANDING = 5
"""So many messages wait for one broker at most: one that hangs for an hour shall not get a flood."""


class Probe:
    """Run it with `run`; look at `ledger` and `covered` at any time."""

    def __init__(
        self,
        access: Access,
        *,
        topic: str = TOPIC,
        interval_s: float = 1.0,
        deadline_s: float = 2.0,
        give_up_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.topic = topic
        self.ledger = ProbeLedger(deadline_s, give_up_s)
        self.covered: Coverage | None = None
        """None until the cluster has answered."""
        self._access, self._interval_s, self._clock = access, interval_s, clock
        self._numbers = itertools.count()
        self._addresses: dict[int, str] = {}
        """Where each broker was last, also those that are away."""
        self._clients: dict[str, ClusterClient] = {}
        self._tries: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; what is on its way then is neither late nor lost."""
        looking = asyncio.create_task(self._look(stop), name="probe-look")
        try:
            while not stop.is_set():
                self._send_round()
                await _pause(stop, self._interval_s)
        finally:
            tasks = [looking, *self._tries]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(client.close() for client in self._clients.values()))

    # -- the topic

    async def _look(self, stop: asyncio.Event) -> None:
        """Keep `covered` up to date, and the topic as large as the cluster."""
        while not stop.is_set():
            try:
                async with self._access.client("isthmus-probe", timeout_s=10) as client:
                    while not stop.is_set():
                        self.covered = await self._cover(client)
                        await _pause(stop, self._interval_s)
            except (ProtocolError, OSError, TimeoutError) as error:
                _log.warning("%s does not answer: %s", self._access.bootstrap, error)
                await _pause(stop, self._interval_s)

    async def _cover(self, client: ClusterClient) -> Coverage:
        found = self._learn(await client.metadata(None))
        if not found.partitions:
            await self._create(client, found)
        elif found.additions:
            count = found.partitions + len(found.additions)
            await client.create_partitions({self.topic: count}, assignments={self.topic: found.additions})
            _log.info("probe: %s watches brokers %s too", self.topic, found.uncovered)
        else:
            return found
        return self._learn(await client.metadata(None))

    def _learn(self, metadata: Metadata) -> Coverage:
        self._addresses |= {number: f"{each.host}:{each.port}" for number, each in metadata.brokers.items()}
        topic = metadata.topics.get(self.topic)
        partitions = {} if topic is None else topic.partitions
        assignment = [partitions[index].replicas for index in sorted(partitions)]
        return coverage(metadata.brokers.keys(), assignment)

    async def _create(self, client: ClusterClient, found: Coverage) -> None:
        assignment = {index: list(replicas) for index, replicas in enumerate(found.additions)}
        try:
            await client.create_topics([NewTopic(self.topic, configs=_SETTINGS, assignment=assignment)])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # by another probe
                raise

    # -- messages

    def _send_round(self) -> None:
        """One message to each broker that has a partition, also to one that is away: that is how it fails."""
        for broker, partition in (self.covered.partition_of if self.covered else {}).items():
            if self.ledger.waiting(broker) >= _OUTSTANDING:
                continue
            number = next(self._numbers)
            self.ledger.sent(broker, number, self._clock())
            task = asyncio.create_task(self._follow(broker, partition, number), name=f"probe-{number}")
            self._tries.add(task)
            task.add_done_callback(self._tries.discard)

    async def _follow(self, broker: int, partition: int, number: int) -> None:
        """Try until the message was read back, or is given up."""
        end = self._clock() + self.ledger.give_up_s
        while self._clock() < end:
            try:
                async with asyncio.timeout(end - self._clock()):
                    await self._round_trip(broker, TopicPartition(self.topic, partition), number)
            except (ProtocolError, OSError, TimeoutError) as error:
                self.ledger.failed(broker, str(error) or "no answer")
                await asyncio.sleep(_RETRY_S)
            else:
                self.ledger.arrived(broker, number, self._clock())
                return
        self.ledger.given_up(broker, number)

    async def _round_trip(self, broker: int, tp: TopicPartition, number: int) -> None:
        client = self._client(broker)
        value = b"probe %d;" % number
        batch = build_batch([Record(0, int(time.time() * 1000), None, value)])
        offset = await client.produce(tp, batch, acks=1, retry=NO_RETRIES)
        while True:
            answer = (await client.fetch_from(broker, {tp: offset}))[tp]
            if isinstance(answer, KafkaError):
                client.forget_leader(tp)  # the same one, but in a new term
                raise answer
            if value in bytes(answer.records):
                return

    def _client(self, broker: int) -> ClusterClient:
        """One for each broker. Raises ConnectError for one that no answer has named yet."""
        address = self._addresses.get(broker)
        if address is None:
            raise ConnectError("the cluster does not name it")
        if address not in self._clients:
            self._clients[address] = replace(self._access, bootstrap=address).client(
                "isthmus-probe", timeout_s=self.ledger.give_up_s
            )
        return self._clients[address]


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
