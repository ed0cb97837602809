"""Where a request has to go: to a broker by number, any broker, the controller, a leader, a coordinator.

Owns what is known of the cluster (brokers, leaders, coordinators) and how it is learned anew. It makes no
sense of answers other than Metadata and FindCoordinator: who finds in an answer that a leader or coordinator
has moved calls `forget_leader` or `forget_coordinator` and asks again (see `retry`).
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

from protocol.client.asking import MAIN_LANE, first_answer, nobody_reached
from protocol.client.connection import DEFAULT_TIMEOUT_S, Connection
from protocol.client.coordinators import CoordinatorKind, ask_for_coordinator
from protocol.client.doors import explained
from protocol.client.errors import (
    ClientError,
    ConnectError,
    ConnectionLostError,
    TurnedAwayError,
    WrongClusterError,
)
from protocol.client.metadata import Broker, Leader, LeaderCache, Metadata, TopicMetadata, read_metadata
from protocol.client.pool import Address, ConnectionPool
from protocol.client.retry import NO_RETRIES, RetryPolicy, may_be_cured, retrying
from protocol.client.same_again import SameAgain
from protocol.client.security import PLAINTEXT, ClientSecurity
from protocol.codec.schema import Request, Response
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.messages.find_coordinator_response import Coordinator
from protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from protocol.messages.metadata_response import MetadataResponse
from protocol.types import TopicPartition

R = TypeVar("R", bound=Response)
T = TypeVar("T")

_SHORT_S: Final = 5.0
_TURNED_AWAY_S: Final = 3.0
"""For so long a first contact is tried with brokers that are there and end it: a certificate or a listener of
another kind stays what it is, and a broker that is just ending is silent by then."""


def parse_bootstrap(text: str) -> list[Address]:
    """`host:port,host:port`; IPv6 hosts in brackets. Raises ValueError."""
    addresses = []
    for part in filter(None, map(str.strip, text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"bootstrap address {part!r} is not of the form host:port")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("no bootstrap address is given")
    return addresses


class Router:
    """Async context manager; inside it `cluster_id` and `brokers` are known."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "isthmus",
        config: ClientSecurity | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        connect_timeout_s: float = 10.0,
        retry: RetryPolicy | None = None,
        first_contact: RetryPolicy | None = None,
        name: str = "",
    ) -> None:
        """`name` is what people call the cluster, for errors. `first_contact` is how long entering goes on
        trying, as `retry` unless it is given: who is asked by people says at once that nobody is there."""
        self._bootstrap = parse_bootstrap(bootstrap)
        self._name = name
        self._protocol = (config or PLAINTEXT).protocol
        self._pool = ConnectionPool(client_id, config or PLAINTEXT, timeout_s, connect_timeout_s)
        self.retry = retry or RetryPolicy()
        self._first_contact = first_contact or self.retry
        self.timeout_s = timeout_s
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: Mapping[int, Broker] = {}
        self._cache = LeaderCache()
        self._all_topics: SameAgain[MetadataResponse, Metadata] = SameAgain()
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._wanted: set[str] = set()
        self._refreshing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        began = time.monotonic()

        def again(error: BaseException) -> bool:
            ended = isinstance(error, TurnedAwayError | ConnectionLostError)
            return may_be_cured(error) and not (ended and time.monotonic() - began > _TURNED_AWAY_S)

        async def ask() -> Metadata:
            return await self.metadata(())

        try:
            await retrying(ask, self._first_contact, curable=again)
        except ClientError as error:
            await self.close()
            raise self.explained(error) from error
        except BaseException:
            await self.close()
            raise
        return self

    def explained(self, error: ClientError) -> ClientError:
        """The error with this cluster named, and with what to do where it does not let this client in."""
        return explained(error, self._name, _text(self._bootstrap), self._protocol)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._pool.close()

    # Connections

    async def connection_to(self, node_id: int, lane: str = MAIN_LANE) -> Connection:
        """An open connection to the broker. Raises `ConnectError`."""
        broker = self.brokers.get(node_id)
        if broker is None:
            await self.metadata(())
            broker = self.brokers.get(node_id)
            if broker is None:
                raise ConnectError(f"broker {node_id} is not in the cluster (known: {sorted(self.brokers)})")
        return await self._pool.get((broker.host, broker.port), lane)

    async def any_connection(self) -> Connection:
        """A connection to whoever takes one, an open one if there is any. Raises `ConnectError`."""
        failed: list[ConnectError] = []
        for address in self._addresses():
            connection = self._pool.existing(address, MAIN_LANE)
            if connection is not None:
                return connection
            try:
                return await self._pool.get(address, MAIN_LANE)
            except ConnectError as error:
                failed.append(error)
        raise nobody_reached(failed)

    def _addresses(self) -> list[Address]:
        """Of all brokers: first those with an open connection where no answer is owed, as a silent one does,
        then those with one, and those that failed last time at the end.
        """
        known = [(broker.host, broker.port) for broker in self.brokers.values()]
        random.shuffle(known)
        addresses = [*known, *(address for address in self._bootstrap if address not in known)]

        def rank(address: Address) -> tuple[int, bool]:
            connection = self._pool.existing(address, MAIN_LANE)
            return 2 if connection is None else int(connection.waiting), self._pool.failing(address)

        addresses.sort(key=rank)
        return addresses

    async def _ask_around(self, ask: Callable[[Connection], Awaitable[T]]) -> T:
        return await first_answer(self._pool, self._addresses(), ask)

    # Sending. `highest` caps the version; with `retry` what the connection may cure is tried again.

    async def send_to(
        self,
        node_id: int,
        request: Request[R],
        *,
        highest: int | None = None,
        lane: str = MAIN_LANE,
        timeout_s: float | None = None,
        retry: RetryPolicy = NO_RETRIES,
    ) -> R:
        async def attempt() -> R:
            connection = await self.connection_to(node_id, lane)
            return await _send(connection, request, highest, timeout_s)

        return await retrying(attempt, retry)

    async def send_any(
        self,
        request: Request[R],
        *,
        highest: int | None = None,
        timeout_s: float | None = None,
        retry: RetryPolicy = NO_RETRIES,
    ) -> R:
        async def attempt() -> R:
            return await _send(await self.any_connection(), request, highest, timeout_s)

        return await retrying(attempt, retry)

    async def send_controller(
        self,
        request: Request[R],
        *,
        highest: int | None = None,
        timeout_s: float | None = None,
        retry: RetryPolicy = NO_RETRIES,
    ) -> R:
        async def attempt() -> R:
            if self.controller_id < 0:
                await self.metadata(())
            if self.controller_id < 0:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller at the moment")
            try:
                return await self.send_to(self.controller_id, request, highest=highest, timeout_s=timeout_s)
            except ClientError:
                self.forget_controller()
                raise

        return await retrying(attempt, retry)

    async def send_leader(
        self,
        tp: TopicPartition,
        request: Request[R],
        *,
        highest: int | None = None,
        lane: str = MAIN_LANE,
        timeout_s: float | None = None,
        retry: RetryPolicy = NO_RETRIES,
    ) -> R:
        async def attempt() -> R:
            leader = await self.leader(tp)
            try:
                return await self.send_to(
                    leader.node, request, highest=highest, lane=lane, timeout_s=timeout_s
                )
            except ClientError:
                self.forget_leader(tp)
                raise

        return await retrying(attempt, retry)

    async def send_coordinator(
        self,
        key: str,
        request: Request[R],
        kind: CoordinatorKind = CoordinatorKind.GROUP,
        *,
        highest: int | None = None,
        lane: str = MAIN_LANE,
        timeout_s: float | None = None,
        retry: RetryPolicy = NO_RETRIES,
    ) -> R:
        async def attempt() -> R:
            node = await self.coordinator(key, kind)
            try:
                return await self.send_to(node, request, highest=highest, lane=lane, timeout_s=timeout_s)
            except ClientError:
                self.forget_coordinator(key, kind)
                raise

        return await retrying(attempt, retry)

    # What is known

    async def metadata(self, topics: Collection[str] | None, *, retry: RetryPolicy = NO_RETRIES) -> Metadata:
        """A fresh answer about these topics, or about all with None. Never creates topics."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)

        read = self._all_topics.read if topics is None else None

        def ask(connection: Connection) -> Awaitable[MetadataResponse]:
            version = connection.version_of(MetadataRequest)
            return connection.send(request, version, timeout_s=self.short_s, read=read)

        answer = await retrying(partial(self._ask_around, ask), retry)
        found = read_metadata(answer) if topics is not None else self._all_topics.made(answer, read_metadata)
        if self.cluster_id is not None and found.cluster_id not in (self.cluster_id, None):
            raise WrongClusterError(
                f"{_text(self._bootstrap)} was cluster {self.cluster_id} and now is {found.cluster_id}"
            )
        self.cluster_id = found.cluster_id
        self.controller_id = found.controller_id
        if found.brokers:
            self.brokers = found.brokers
        self._cache.learn(found)
        return found

    @property
    def short_s(self) -> float:
        """For requests that another broker can answer too, now or once it has taken over: one that is silent
        is not waited for long, if there are others."""
        return min(self.timeout_s, _SHORT_S) if len(self.brokers) > 1 else self.timeout_s

    async def leader(self, tp: TopicPartition) -> Leader:
        """From memory if known. Raises `KafkaError` for unknown topics and partitions, and while there is no
        leader."""
        leader = self._cache.leader(tp)
        if leader is None:
            await self._refresh(tp.topic)
            leader = self._cache.leader(tp)
        if leader is not None:
            return leader
        topic = self._cache.topics.get(tp.topic)
        if topic is None:
            code = self._cache.refused.get(tp.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif tp.partition not in topic.partitions:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        raise KafkaError(code, str(tp))

    async def known_leaders(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Leader]:
        """Of those that have one as far as is known, with one look-up for all others, which may fail."""
        with contextlib.suppress(ProtocolError):
            await self.learn_leaders(tps)
        return {tp: leader for tp in tps if (leader := self._cache.leader(tp)) is not None}

    async def topic(self, name: str) -> TopicMetadata:
        """From memory if known. Raises `KafkaError`."""
        if name not in self._cache.topics:
            await self._refresh(name)
        topic = self._cache.topics.get(name)
        if topic is None:
            raise KafkaError(
                self._cache.refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"topic {name}"
            )
        return topic

    async def coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> int:
        """Number of the coordinating broker. Raises `KafkaError`."""
        node = self._coordinators.get((kind, key))
        if node is None:
            found = await self._find_coordinator(key, kind)
            if found.error_code:
                what = f"coordinator of {kind.name.lower()} {key}"
                raise KafkaError(
                    ErrorCode.of(found.error_code), ": ".join(filter(None, (what, found.error_message)))
                )
            node = found.node_id
            if node not in self.brokers:
                self.brokers = {**self.brokers, node: Broker(found.host, found.port)}
            self._coordinators[kind, key] = node
        return node

    def forget_leader(self, tp: TopicPartition) -> None:
        self._cache.forget(tp)

    def forget_topic(self, name: str) -> None:
        """For topics that were created, deleted or grown."""
        for tp in self._cache.partitions_of(name):
            self._cache.forget(tp)
        self._cache.topics.pop(name, None)

    def forget_coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> None:
        self._coordinators.pop((kind, key), None)

    def forget_controller(self) -> None:
        self.controller_id = -1

    async def learn_leaders(self, tps: Iterable[TopicPartition]) -> None:
        """Looks up all unknown leaders among `tps` in one request."""
        unknown = {tp.topic for tp in tps if self._cache.leader(tp) is None}
        if unknown:
            await self._refresh(*unknown)

    async def _refresh(self, *topics: str) -> None:
        """One Metadata request for everybody who wants one at the moment."""
        self._wanted.update(topics)
        async with self._refreshing:
            names = self._wanted
            if not names.intersection(topics):
                return  # the request of somebody before us in the queue had them
            self._wanted = set()
            try:
                await self.metadata(names)
            except BaseException:
                self._wanted |= names
                raise

    async def _find_coordinator(self, key: str, kind: CoordinatorKind) -> Coordinator:
        return await self._ask_around(
            lambda connection: ask_for_coordinator(connection, key, kind, timeout_s=self.short_s)
        )


async def _send(
    connection: Connection, request: Request[R], highest: int | None, timeout_s: float | None
) -> R:
    version = connection.version_of(type(request), highest)
    return await connection.send(request, version, timeout_s=timeout_s)


def _text(addresses: Iterable[Address]) -> str:
    return ",".join(f"{host}:{port}" for host, port in addresses)
