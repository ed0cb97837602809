"""What a handler may know about the request it answers.

`ConnectionInfo` belongs to one client connection and lives as long as it does (who the peer is, on which
listener it came, as whom it authenticated, which client software it named by KIP-511). `RequestContext` is
made per request. Neither knows sockets: a handler can not write to or close the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.sasl_gate import SaslSession

ANONYMOUS = "User:ANONYMOUS"


class ConnectionInfo:
    """The peer of one connection. `software_name`/`software_version` are filled in by ApiVersions v3+.

    `hurried` while a request has come behind the one that is being served; `on_hurry` is told when it comes.
    """

    __slots__ = (
        "hurried", "listener", "on_hurry", "peer_host", "peer_port", "principal", "sasl", "software_name",
        "software_version",
    )  # fmt: skip

    def __init__(
        self, peer_host: str, peer_port: int, listener: str = "PLAINTEXT", principal: str = ANONYMOUS
    ) -> None:
        self.peer_host = peer_host
        self.peer_port = peer_port
        self.listener = listener
        self.principal = principal
        self.sasl: SaslSession | None = None
        self.software_name = "unknown"
        self.software_version = "unknown"
        self.hurried = False
        self.on_hurry: Callable[[], None] | None = None

    def hurry(self) -> None:
        """Another request waits until this one is answered."""
        self.hurried = True
        if self.on_hurry is not None:
            self.on_hurry()

    @property
    def peer(self) -> str:
        return f"{self.peer_host}:{self.peer_port}"


class RequestContext:
    """One request's surroundings. `received_at` is `clock.monotonic()` in seconds."""

    __slots__ = ("api_version", "broker", "client_id", "connection", "received_at")

    def __init__(
        self,
        broker: Broker,
        api_version: int,
        client_id: str | None,
        connection: ConnectionInfo,
        received_at: float,
    ) -> None:
        self.broker = broker
        self.api_version = api_version
        self.client_id = client_id
        self.connection = connection
        self.received_at = received_at
