"""The APIs of the protocol by key: names, versions, classes.

Message modules are imported when a class is first asked for, because a process uses few of the sixty APIs.
Versions are those that the codec can read and write; what a broker advertises is decided where its handlers
register, with one trap: see `ADVERTISED_MIN`. Keys from 10,000 on are isthmus's own (`protocol.private`).
"""

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

from protocol.codec.schema import Request, Response
from protocol.messages.index import ROWS, ApiKey
from protocol.private.index import FIRST_KEY, PRIVATE_ROWS, PrivateKey

__all__ = ["ADVERTISED_MIN", "APIS", "Api", "ApiKey"]

ADVERTISED_MIN: Mapping[int, int] = {ApiKey.PRODUCE: 0}
"""Where ApiVersions must name a lower minimum than is accepted: librdkafka before 2.11.1 sends uncompressed
batches unless Produce v0 is in range (KAFKA-18659). Kafka 4 does the same and refuses those versions."""


class Api:
    """One API. `flexible_from`: first version with compact lengths and tagged fields (KIP-482), or None."""

    def __init__(self, key: int, name: str, low: int, high: int, flexible_from: int | None) -> None:
        self.key = key
        self.name = name
        self.min = low
        self.max = high
        self.flexible_from = flexible_from

    def is_flexible(self, version: int) -> bool:
        return self.flexible_from is not None and version >= self.flexible_from

    @cached_property
    def request(self) -> type[Request[Any]]:
        loaded: type[Request[Any]] = self._load("Request")
        return loaded

    @cached_property
    def response(self) -> type[Response]:
        loaded: type[Response] = self._load("Response")
        return loaded

    @property
    def is_private(self) -> bool:
        """Whether only isthmus speaks it."""
        return self.key >= FIRST_KEY

    def _load(self, kind: str) -> Any:
        package, keys = ("private", PrivateKey) if self.is_private else ("messages", ApiKey)
        module = f"protocol.{package}.{keys(self.key).name.lower()}_{kind.lower()}"
        return getattr(import_module(module), self.name + kind)

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name}, v{self.min}-{self.max})"


APIS: Mapping[int, Api] = {row[0]: Api(*row) for row in (*ROWS, *PRIVATE_ROWS)}
