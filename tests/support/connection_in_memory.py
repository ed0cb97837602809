"""A connection to a broker in memory that takes Produce requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from protocol.client import ClientError
from protocol.codec import decode
from protocol.frames import encode_response
from protocol.messages.produce_request import ProduceRequest
from protocol.messages.produce_response import ProduceResponse

WAY_S, _APART_S = 0.003, 0.0001


class Brokers(Protocol):
    """Whoever is behind it."""

    answer_late_s: float

    def produced(self, request: ProduceRequest, node: int) -> ProduceResponse:
        """Raises ClientError where the request or its answer is lost."""


class Connection:
    def __init__(self, cluster: Brokers, node: int) -> None:
        self._cluster = cluster
        self._node = node
        self._arrival = self._heard = 0.0
        self.closed = self.full = self.retired = False

    def version_of(self, request: Any, highest: int | None = None) -> int:
        return min(12, highest or 12)

    def call(self, request: Any, version: int, body: list[Any], answered: Callable[[Any], None]) -> bool:
        if self.closed:
            return False
        produced = decode(ProduceRequest, version, b"".join(body))
        loop = asyncio.get_running_loop()
        self._arrival = max(loop.time() + WAY_S, self._arrival + _APART_S)  # requests stay in order
        loop.call_at(self._arrival, self._arrive, produced, version, answered)
        return True

    def _arrive(self, produced: ProduceRequest, version: int, answered: Callable[[Any], None]) -> None:
        if self.closed:
            answered(ClientError("the connection is closed"))
            return
        try:
            response = self._cluster.produced(produced, self._node)
        except ClientError as error:
            self.closed = True
            answered(error)
            return
        frame = memoryview(b"".join(encode_response(response, version, 1))[4:])
        late = self._cluster.answer_late_s
        if not late and self._heard <= asyncio.get_running_loop().time():
            answered(frame)
            return
        loop = asyncio.get_running_loop()
        self._heard = max(self._heard, loop.time() + late)
        loop.call_at(self._heard, answered, frame)

    async def close(self) -> None:
        self.closed = True


def segments(records: Any) -> Iterable[bytes]:
    return map(bytes, records) if isinstance(records, list) else [bytes(records)]
