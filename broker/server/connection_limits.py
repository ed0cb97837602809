"""How many connections a broker takes, from one address and in all, and how fast new ones (KIP-612).

Plain state, shared by all listeners of a broker; Kafka's ConnectionQuotas. Kafka leaves connections above
`max.connections` waiting in the kernel, here they are closed. New ones above `max.connection.creation.rate`
wait for their turn, as there, and are closed where more wait than a listen backlog would hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from broker.config import BrokerConfig, ConfigError

NO_LIMIT = 2**31 - 1
UNKNOWN_HOST = "?"
"""A peer that was gone before it could be named."""
# A rate may be exceeded by what it allows in this time: clients that start together are not an attack.
_BURST_S = 1.0


def per_address(limit: int, overrides: str) -> Callable[[str], int]:
    """The limit for an address. `overrides` is `host:number,host:number`. Raises ConfigError."""
    limits: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in overrides.split(","))):
        host, colon, number = item.rpartition(":")
        if not colon or not number.isdigit():
            raise ConfigError([f"max.connections.per.ip.overrides: {item!r} is not host:number"])
        limits[host.strip("[]")] = int(number)
    return lambda address: limits.get(address, limit)


class ConnectionLimits:
    """Every connection `enter`s and, whatever the answer was, `leave`s."""

    def __init__(
        self,
        most: int = NO_LIMIT,
        per_ip: Callable[[str], int] = lambda host: NO_LIMIT,
        per_second: int = NO_LIMIT,
        most_waiting: int = NO_LIMIT,
    ) -> None:
        self.count = 0
        self._most = most
        self._per_ip = per_ip
        self._per_second = per_second
        self._most_waiting = most_waiting
        self._of_host: dict[str, int] = {}
        self._turn_s = -math.inf

    @classmethod
    def from_config(cls, config: BrokerConfig, most_waiting: int) -> ConnectionLimits:
        """Raises ConfigError."""
        per_ip = per_address(config.max_connections_per_ip, config.max_connections_per_ip_overrides)
        return cls(config.max_connections, per_ip, config.max_connection_creation_rate, most_waiting)

    def enter(self, host: str) -> str | None:
        """Count a connection; why it may not stay, or None."""
        self.count += 1
        of_host = self._of_host[host] = self._of_host.get(host, 0) + 1
        if of_host > self._per_ip(host) and host != UNKNOWN_HOST:
            return f"{of_host} connections from one address, the limit is {of_host - 1}"
        if self.count > self._most:
            return f"the limit of {self._most} connections is reached"
        return None

    def leave(self, host: str) -> None:
        self.count -= 1
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until a new connection's turn; None when too many wait already."""
        if self._per_second == NO_LIMIT:
            return 0.0
        if not self._per_second:
            return None
        turn_s = max(self._turn_s, now_s - _BURST_S) + 1 / self._per_second
        if (turn_s - now_s) * self._per_second > self._most_waiting + 1:
            return None
        self._turn_s = turn_s
        return max(0.0, turn_s - now_s)
