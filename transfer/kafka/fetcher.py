"""The connections that read from one broker.

Owns asking and waiting; what answers mean is decided in `positions`, what follows from them in `source`. A
broker answers one request of a connection at a time, so an idle long poll would hold up other partitions:
there are a few connections per broker, each asks for its share, and a partition is asked for in at most one
of them, if it can be always in the same one: what that has told the broker holds on (`reading_session`). New
partitions do not wait for the end of a long poll.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from protocol.client.asking import MAIN_LANE
from protocol.client.connection import Connection
from protocol.errors import ProtocolError
from protocol.messages.fetch_request import FetchRequest
from protocol.types import ZERO_UUID, TopicPartition
from transfer.endpoint import Chunk, SourceFault
from transfer.kafka.duty import Broken, on_duty
from transfer.kafka.fetch_body import fetch_body
from transfer.kafka.fetch_size import FetchSize
from transfer.kafka.positions import Trouble, outcomes
from transfer.kafka.reading import Reading
from transfer.kafka.reading_session import ReadingSession

_log = logging.getLogger("isthmus.transfer")

_NEWEST_BY_NAME = 12
"""Later versions of Fetch name topics by id only (KIP-516)."""

_FAREWELL_S: Final = 1.0

Arrival = tuple[Reading, Chunk | SourceFault]


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Sizes and waits of reading. More connections help over long round trips."""

    max_bytes: int = 4 << 20
    partition_max_bytes: int = 1 << 20
    max_wait_ms: int = 500
    busy_wait_ms: int = 20
    """The longest poll while some partition of the broker is paused or backs off, so that it is not late."""
    connections_per_broker: int = 2
    session_from: int = 32
    """Partitions in one request from which on those at the end of their logs get a fetch session."""
    gone_after_s: float = 5.0
    """How long a topic must be unknown, or a position too high, before that counts as a fact."""


class BrokerFetcher:
    """Reads the partitions that `readings` names until `close`."""

    def __init__(
        self,
        dial: Callable[[str], Awaitable[Connection]],
        settings: FetchSettings,
        readings: Callable[[], list[Reading]],
        deliver: Callable[[list[Arrival]], Awaitable[None]],
        trouble: Callable[[Reading, Trouble], Awaitable[None]],
        broken: Broken,
    ) -> None:
        self._dial = dial
        self._settings = settings
        self._readings = readings
        self._deliver = deliver
        self._trouble = trouble
        self._size = FetchSize(settings.partition_max_bytes)
        self._wake = asyncio.Event()
        self._opened = asyncio.Event()
        self._asking = 0
        """Connections that wait for an answer."""
        clock = asyncio.get_running_loop().time
        self._sessions = [
            ReadingSession(settings.partition_max_bytes, settings.session_from, clock)
            for _ in range(settings.connections_per_broker)
        ]
        self._tasks = [
            on_duty(self._run(number), broken) for number in range(settings.connections_per_broker)
        ]
        self._tasks.append(on_duty(self._look_at_new(), broken))

    def wake(self) -> None:
        """Says that a partition may have become ready."""
        self._wake.set()

    def added(self) -> None:
        """Says that there is a partition that was not read here before."""
        self._wake.set()
        self._opened.set()

    async def close(self) -> None:
        """Ends the tasks, their connections and sessions."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._say_farewell()

    async def _run(self, number: int) -> None:
        connection: Connection | None = None
        session = self._sessions[number]
        try:
            while True:
                picked, wait_ms = await self._picked(number)
                try:
                    if connection is None or connection.closed or connection.retired:
                        session.reset()
                        connection = await self._dial(f"fetch-{id(self):x}-{number}")
                    asked_at = asyncio.get_running_loop().time()
                    self._asking += 1
                    try:
                        version, frame = await self._ask(connection, session, picked, wait_ms)
                    finally:
                        self._asking -= 1
                    await self._take_in(version, frame, picked, asked_at)
                    del frame  # its memory is needed before the next one is there
                except ProtocolError as error:
                    _log.info("fetch: %s", error)
                    session.reset()
                    if connection is not None:
                        await connection.close()
                    await self._all_stale(picked)
        finally:
            if connection is not None:
                if connection.closed:  # its broker may be away: closing does not wait for it
                    session.reset()
                await connection.close()

    async def _look_at_new(self) -> None:
        """Reads new partitions while all connections wait for data of others: a long poll cannot be told of
        them. On the connection that all share, so without waiting there."""
        while True:
            await self._opened.wait()
            self._opened.clear()
            while new := self._new():
                if self._asking == self._settings.connections_per_broker:
                    await self._look_at(new)
                await asyncio.sleep(self._settings.busy_wait_ms / 1000)

    def _new(self) -> list[Reading]:
        """Whom no connection has asked for yet."""
        now = asyncio.get_running_loop().time()
        return [reading for reading in self._readings() if reading.asked_by < 0 and reading.ready(now)]

    async def _look_at(self, new: list[Reading]) -> None:
        picked = {reading.tp: reading for reading in new}
        for reading in new:
            reading.asked = True
        try:
            connection = await self._dial(MAIN_LANE)
            asked_at = asyncio.get_running_loop().time()
            version, frame = await self._ask_in_full(connection, _version(connection, picked), picked, 0)
            await self._take_in(version, frame, picked, asked_at)
        except ProtocolError as error:
            _log.debug("fetch: new partitions wait for their turn: %s", error)
            self._release(new)

    async def _say_farewell(self) -> None:
        """Gives slots back that others would have to wait for (KIP-227). On the connection that all share:
        those for reading may still be busy with a long poll."""
        if not any(session.stands for session in self._sessions):
            return
        try:
            async with asyncio.timeout(_FAREWELL_S):
                connection = await self._dial(MAIN_LANE)
                version = connection.version_of(FetchRequest)
                for session in self._sessions:
                    if session.stands:
                        await connection.frame(FetchRequest, version, session.farewell(version))
        except (ProtocolError, TimeoutError) as error:
            _log.debug("fetch: sessions are left behind: %s", error)

    async def _picked(self, number: int) -> tuple[dict[TopicPartition, Reading], int]:
        """Waits until there is something for this connection to ask; marks it as asked."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            readings = self._readings()
            idle = [reading for reading in readings if not reading.asked]
            ready = [reading for reading in idle if reading.ready(now)]
            if ready:
                break
            self._wake.clear()
            held = [r.not_before for r in idle if r.not_before > now and not r.paused]
            try:
                async with asyncio.timeout_at(min(held) if held else None):
                    await self._wake.wait()
            except TimeoutError:
                continue
        share = -(-len(readings) // self._settings.connections_per_broker)
        mine = ready
        if len(ready) > share:  # the rest is for the other connections
            mine = sorted(ready, key=lambda reading: reading.asked_by != number)[:share]
        mine = _in_turn(mine)
        for reading in mine:
            reading.asked, reading.asked_by = True, number
        if len(mine) < len(ready) and any(reading.asked_by < 0 for reading in ready):
            self._opened.set()  # nobody else may be there to ask for the rest
        wait_ms = self._settings.max_wait_ms if len(ready) == len(idle) else self._settings.busy_wait_ms
        return {reading.tp: reading for reading in mine}, wait_ms

    async def _ask(
        self,
        connection: Connection,
        session: ReadingSession,
        picked: dict[TopicPartition, Reading],
        wait_ms: int,
    ) -> tuple[int, memoryview]:
        """The answer's version and frame. Raises ProtocolError."""
        version = _version(connection, picked)
        readings = picked.values()
        while session.suits(version, readings):
            body = session.body(version, readings, max_wait_ms=wait_ms, max_bytes=self._settings.max_bytes)
            frame = await connection.frame(FetchRequest, version, body)
            if session.heard(frame):
                return version, frame
        return await self._ask_in_full(connection, version, picked, wait_ms)

    async def _ask_in_full(
        self, connection: Connection, version: int, picked: dict[TopicPartition, Reading], wait_ms: int
    ) -> tuple[int, memoryview]:
        body = fetch_body(
            version,
            picked.values(),
            max_wait_ms=wait_ms,
            max_bytes=self._settings.max_bytes * self._size.factor,
            partition_max_bytes=self._settings.partition_max_bytes * self._size.factor,
        )
        return version, await connection.frame(FetchRequest, version, body)

    async def _take_in(
        self, version: int, frame: memoryview, picked: dict[TopicPartition, Reading], asked_at: float
    ) -> None:
        """Hands on what was read. Raises DecodeError."""
        now = asyncio.get_running_loop().time()
        arrived: list[Arrival] = []
        troubles: list[tuple[Reading, Trouble]] = []
        for reading, outcome in outcomes(version, frame, picked):
            if isinstance(outcome, Trouble):
                troubles.append((reading, outcome))
            elif outcome is not None:
                reading.served_at = now
                arrived.append((reading, outcome))
        self._size.answered(_largest(arrived), now - asked_at)
        for reading, _ in troubles:
            reading.refused(now)
        if arrived:
            await self._deliver(arrived)
            # What was read is on its way to the target before more is asked for: whoever waits for it waits
            # that much less. One turn is the engine's, one the sender's.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        for reading in picked.values():  # within a session also those that the answer does not name
            reading.answered(now)
        self._wake.set()
        for reading, trouble in troubles:
            if not reading.closed:
                await self._trouble(reading, trouble)

    async def _all_stale(self, picked: dict[TopicPartition, Reading]) -> None:
        now = asyncio.get_running_loop().time()
        for reading in picked.values():
            reading.back_off(now)
        self._release(picked.values())
        for reading in picked.values():
            await self._trouble(reading, Trouble.STALE)

    def _release(self, readings: Iterable[Reading]) -> None:
        for reading in readings:
            reading.asked = False
        self._wake.set()


def _version(connection: Connection, picked: dict[TopicPartition, Reading]) -> int:
    by_name = any(reading.topic_id == ZERO_UUID for reading in picked.values())
    return connection.version_of(FetchRequest, _NEWEST_BY_NAME if by_name else None)


def _in_turn(readings: list[Reading]) -> list[Reading]:
    """The order to ask in. An answer has a limit, so what is new comes before those that catch up, and they
    take turns: who has had nothing for the longest time is first. That one comes before all: a batch that is
    larger than the partition's limit is only given to the first one with data (KIP-74)."""
    behind = [reading for reading in readings if reading.catches_up]
    if not behind:
        return readings
    behind.sort(key=lambda reading: reading.served_at)
    return [behind[0], *(reading for reading in readings if not reading.catches_up), *behind[1:]]


def _largest(arrived: Iterable[Arrival]) -> int:
    """Bytes of the partition that gave most."""
    return max((len(outcome.batches) for _, outcome in arrived if isinstance(outcome, Chunk)), default=0)
