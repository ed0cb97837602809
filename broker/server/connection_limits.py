"""Limits on connections from one address (`max.connections.per.ip`, with overrides for single addresses)."""

from __future__ import annotations

from collections.abc import Callable

from broker.config import ConfigError


def per_address(limit: int, overrides: str) -> Callable[[str], int]:
    """The limit for an address. `overrides` is `host:number,host:number`. Raises ConfigError."""
    limits: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in overrides.split(","))):
        host, colon, number = item.rpartition(":")
        if not colon or not number.isdigit():
            raise ConfigError([f"max.connections.per.ip.overrides: {item!r} is not host:number"])
        limits[host.strip("[]")] = int(number)
    return lambda address: limits.get(address, limit)
