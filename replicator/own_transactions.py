"""Transactions of the link itself that nobody will end any more, at the target.

Owns ending them. An unclean election may leave the records of a transaction and not the marker of its end,
which the coordinator takes for written: readers of committed records wait there for ever. What was committed
the link knows by its ledger: they are aborted, and that is copied again. Those of others are left alone.
"""

from __future__ import annotations

import asyncio
import logging

from protocol.client import LATEST, ClientError, ClusterClient, Isolation, NotSupportedError
from protocol.errors import ErrorCode
from protocol.types import TopicPartition
from replicator.hanging import Hanging, open_transactions

_log = logging.getLogger("isthmus.replicator")


class OwnTransactions:
    """Of all workers of a link, by the beginning of their transactional ids."""

    def __init__(self, client: ClusterClient, transactional_id: str, timeout_ms: int) -> None:
        self._client = client
        self._prefix = f"{transactional_id}."
        self._timeout_ms = timeout_ms
        self._ending = asyncio.Lock()
        """One may hang in several partitions: each end takes its id from whoever ended it before."""

    async def end(self, tp: TopicPartition, end: int) -> int | None:
        """Aborts those that are open in a partition below offset `end`; where the first of them began, None
        where there is none. A worker that lives and has the id takes another one. Raises ProtocolError, also
        while one is open that its coordinator has still to end: it ends what hangs there with it."""
        async with self._ending:
            stable = await self._client.offset(tp, LATEST, isolation=Isolation.READ_COMMITTED)
            if stable.offset >= end:
                return None
            try:
                found, ending = await open_transactions(self._client, sorted(self._client.brokers), [tp])
            except NotSupportedError:  # brokers before 3.0
                return None
            for one in ending:
                if one.start < end and one.known_as.startswith(self._prefix):
                    raise ClientError(f"{tp}: a transaction of {one.known_as} is open there and ends soon")
            ended = [one.start for one in found if one.start < end and await self._abort(one)]
            return min(ended, default=None)

    async def _abort(self, one: Hanging) -> bool:
        if not one.known_as.startswith(self._prefix):
            return False
        producer = await self._client.init_transactional_producer(one.known_as, self._timeout_ms)
        if (
            producer.producer_id != one.producer_id
        ):  # its epochs had run out: the old one is nobody's any more
            return False
        codes = await self._client.add_to_transaction(one.known_as, producer, [one.tp])
        if any(code is not ErrorCode.NONE for code in codes.values()):
            return False
        await self._client.end_transaction(one.known_as, producer, commit=False)
        _log.warning(
            "%s: the target has records of %s from offset %d on, and has lost the end of their transaction:"
            " it is aborted, what of them was committed is copied again",
            *(one.tp, one.known_as, one.start),
        )
        return True
