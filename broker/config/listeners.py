"""Listeners: `NAME://host:port` as Kafka writes it, where a broker listens and what it tells clients.

Must not open sockets.
"""

import re
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_LISTENER = re.compile(r"([A-Za-z0-9_-]+)://(\[[0-9A-Fa-f:.%]*\]|[^:/\[\]]*):(-?\d+)")
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Endpoint(NamedTuple):
    """One listener. `protocol` is the security protocol that its name maps to."""

    name: str
    host: str
    port: int
    protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """Listener name -> security protocol. Raises ValueError."""
    protocols: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = item.partition(":")
        if not colon or protocol.upper() not in SECURITY_PROTOCOLS:
            raise ValueError(f"{item!r} is not NAME:PROTOCOL with one of {', '.join(SECURITY_PROTOCOLS)}")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def parse_listeners(texts: Sequence[str], protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Listeners of `listeners` or `advertised.listeners`. Raises ValueError for the first wrong one."""
    endpoints = [_parse(text, protocols) for text in texts]
    if not endpoints:
        raise ValueError("names no listener; write for example PLAINTEXT://127.0.0.1:9092")
    names = [endpoint.name for endpoint in endpoints]
    if len(set(names)) != len(names):
        raise ValueError(f"names a listener twice: {', '.join(names)}")
    bound = [(endpoint.host, endpoint.port) for endpoint in endpoints if endpoint.port != 0]
    if len(set(bound)) != len(bound):
        raise ValueError(f"two listeners share an address: {', '.join(texts)}")
    return tuple(endpoints)


def _parse(text: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _LISTENER.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a listener; write for example PLAINTEXT://127.0.0.1:9092")
    name, host, port = match[1].upper(), match[2].strip("[]"), int(match[3])
    if not 0 <= port <= 65535:
        raise ValueError(f"{text!r}: port must be between 0 and 65535")
    protocol = protocols.get(name)
    if protocol is None:
        raise ValueError(f"{text!r}: {name} is not in listener.security.protocol.map")
    return Endpoint(name, host, port, protocol)


def advertised_host(host: str) -> str:
    """Host to tell clients of a listener bound to `host`: all interfaces become this machine's name."""
    return socket.getfqdn() if host in ("", "0.0.0.0", "::") else host
