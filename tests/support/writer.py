"""A writer that asks one broker, whoever leads, and keeps which writes were acknowledged or refused."""

from __future__ import annotations

import asyncio
import time
from typing import Self

from protocol.client import Connection
from protocol.errors import ErrorCode
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.batches import batch

STAMPED = {"message.timestamp.type": "LogAppendTime"}


class Writer:
    """One record each 10 ms to the broker at `port`, as a context. The topic needs LogAppendTime (`STAMPED`).

    Times are of the wall clock, in seconds.
    """

    def __init__(self, port: int, topic: str, *, partition: int = 0, acks: int = 1) -> None:
        self._port, self._topic, self._partition, self._acks = port, topic, partition, acks
        self._tag = f"{port}-{time.monotonic_ns()}"
        self._task: asyncio.Task[None] | None = None
        self.acknowledged: list[tuple[float, bytes]] = []
        """When the leader appended it, and the value: its answer may lie about for a while."""
        self.refused: list[tuple[float, ErrorCode]] = []

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._write())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    @property
    def last(self) -> float:
        """When the last write that was acknowledged had been appended; 0 if none was."""
        return self.acknowledged[-1][0] if self.acknowledged else 0.0

    async def _write(self) -> None:
        connection = await Connection.open("127.0.0.1", self._port, client_id="writer")
        number = 0
        try:
            while True:
                number += 1
                await self._send(connection, f"{number} of {self._tag}".encode())
                await asyncio.sleep(0.01)
        finally:
            await connection.close()

    async def _send(self, connection: Connection, value: bytes) -> None:
        data = PartitionProduceData(index=self._partition, records=batch([value]))
        topic = TopicProduceData(name=self._topic, partition_data=[data])
        request = ProduceRequest(acks=self._acks, timeout_ms=1000, topic_data=[topic])
        answer = (await connection.send(request)).responses[0].partition_responses[0]
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            assert answer.log_append_time_ms > 0, "the topic needs message.timestamp.type=LogAppendTime"
            self.acknowledged.append((answer.log_append_time_ms / 1000, value))
        else:
            self.refused.append((time.time(), code))
