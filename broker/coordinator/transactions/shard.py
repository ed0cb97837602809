"""The transactional ids of one partition of `__transaction_state`: what its leader holds in memory, and how
that is read from the log.

`coordinator_epoch` is the leader epoch of the partition: markers carry it, so that those of an old one are
refused. A shard is of use once it is complete. Records that cannot be read cost themselves and an
error in the log, not the partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from broker.coordinator.offsets_log import OffsetsLog
from broker.coordinator.transactions.records import read_image, read_transactional_id
from broker.coordinator.transactions.transaction import Transaction
from protocol.errors import ProtocolError
from protocol.records import BatchHeader, iter_headers, read_records

logger = logging.getLogger("isthmus.broker.coordinator")


class Shard:
    """Transactions of partition `index`, led in `coordinator_epoch`, with the log behind them."""

    def __init__(self, index: int, coordinator_epoch: int, log: OffsetsLog) -> None:
        self.index = index
        self.coordinator_epoch = coordinator_epoch
        self.log = log
        self.complete = False
        self.closed = False
        self.transactions: dict[str, Transaction] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Leadership has ended: another broker reads this log and goes on with what is under way."""
        self.closed, self.complete = True, False
        for task in self.tasks:
            task.cancel()

    async def load(self) -> int:
        """Read the whole log; returns the number of records. Raises `broker.log.LogError`."""
        latest: dict[bytes, tuple[bytes | None, int]] = {}
        count = 0
        async for batches in self.log.read_all():
            for position, header in iter_headers(batches):
                if not header.is_control:
                    count += header.record_count
                    self._take(batches, position, header, latest)
                await asyncio.sleep(0)
        self.transactions = dict(self._restored(latest))
        return count

    def _take(
        self,
        batches: memoryview,
        position: int,
        header: BatchHeader,
        latest: dict[bytes, tuple[bytes | None, int]],
    ) -> None:
        try:
            for record in read_records(batches, position, header):
                if record.key is not None:
                    latest[record.key] = (record.value, record.offset)
        except ProtocolError as error:
            logger.error("%s: a batch cannot be read: %s", self.log, error)

    def _restored(self, latest: dict[bytes, tuple[bytes | None, int]]) -> Iterator[tuple[str, Transaction]]:
        for key, (value, offset) in latest.items():
            try:
                name = read_transactional_id(key)
                if name is not None and value is not None:
                    yield name, Transaction(name, read_image(value))
            except ProtocolError as error:
                logger.error("%s: record at offset %d cannot be read: %s", self.log, offset, error)
