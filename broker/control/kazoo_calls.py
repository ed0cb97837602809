"""What kazoo takes and gives, in our words: its client, results, watches, operations, errors.

Must not know Kafka's paths, nor when a command is worth trying again (`zookeeper`).
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

from broker.control.zookeeper_types import (
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionExpired,
    Set,
    ZooKeeperError,
)

Watch = Callable[[], None]

ERRORS: dict[type[Exception], type[ZooKeeperError]] = {
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.NoNodeError: NoNode,
    kazoo_errors.BadVersionError: BadVersion,
    kazoo_errors.NotEmptyError: NotEmpty,
    kazoo_errors.SessionExpiredError: SessionExpired,
    kazoo_errors.ConnectionClosedError: SessionExpired,
}


def open_client(
    hosts: str,
    session_timeout_ms: int,
    session: tuple[int, bytes] | None = None,
    preferred: Collection[str] = (),
) -> Any:
    """A client that is not started. Servers of `preferred` are tried before the others each time it has none;
    a session stays where it is while that server answers.
    """
    quiet = logging.getLogger("isthmus.broker.kazoo")
    quiet.setLevel(logging.CRITICAL)  # what matters of its talk is logged here, in our words
    forever = KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0, max_jitter=0.2)
    client = KazooClient(
        hosts=",".join(in_order(hosts, preferred)),
        randomize_hosts=not preferred,
        timeout=session_timeout_ms / 1000,
        client_id=session,
        connection_retry=forever,
        logger=quiet,
    )
    client.negotiated_ms = session_timeout_ms
    _keep_negotiated_timeout(client)
    _share_time_to_connect(client)
    return client


def in_order(hosts: str, preferred: Collection[str]) -> list[str]:
    """Random, so that brokers with one setting spread over the servers; the preferred ones in front."""
    servers = [host.strip() for host in hosts.split(",")]
    random.shuffle(servers)
    servers.sort(key=lambda server: server not in preferred)
    return servers


def _keep_negotiated_timeout(client: Any) -> None:
    """The server may grant a shorter session than was asked for; kazoo goes by it and does not say so."""
    connect = client._connection._connect

    def keep(*arguments: Any) -> Any:
        read_ms, connect_ms = connect(*arguments)
        client.negotiated_ms = read_ms * 3 / 2  # kazoo waits two thirds of it for an answer
        return read_ms, connect_ms

    client._connection._connect = keep


def _share_time_to_connect(client: Any) -> None:
    """kazoo lets one server that does not answer take the whole session's time to connect; Java's client
    gives each its share, so that the session outlives a server that swallows what it is sent."""
    create = client.handler.create_connection

    def create_within_share(*arguments: Any, timeout: float, **options: Any) -> Any:
        return create(*arguments, timeout=timeout / max(len(client.hosts), 1), **options)

    client.handler.create_connection = create_within_share


@dataclass(frozen=True)
class Waker:
    """What kazoo calls for a watch. Equal ones are kept once: setting a watch again does not pile up."""

    to_loop: Callable[..., None]
    watch: Watch

    def __call__(self, event: object) -> None:
        self.to_loop(self.watch)


def node_of(data: bytes | None, stat: Any) -> Node:
    return Node(data or b"", stat.version, stat.ephemeralOwner, stat.czxid, stat.ctime, stat.mzxid)


def settle(future: "asyncio.Future[Any]", result: Any) -> None:
    if future.cancelled():
        return
    if result.exception is not None:
        future.set_exception(result.exception)
    else:
        future.set_result(result.value)


def add(request: Any, operation: Operation) -> None:
    match operation:
        case Create(path, data, ephemeral):
            request.create(path, data, ephemeral=ephemeral)
        case Set(path, data, version):
            request.set_data(path, data, version)
        case Delete(path, version):
            request.delete(path, version)
        case Check(path, version):
            request.check(path, version)


def translated(path: str, error: Exception) -> ZooKeeperError:
    kind = ERRORS.get(type(error), ZooKeeperError)
    return kind(f"{path}: {type(error).__name__}", path)
