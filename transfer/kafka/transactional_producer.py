"""The producer of transactions: which transactional id it has, and its producer id and epoch.

Owns how it is initialised, how the end of a transaction is asked for, and when it goes on under another id:
one whose last transaction cannot be completed is left for a while, one that somebody else has taken for ever
(KIP-98, KIP-360). Must not know what is written in transactions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from protocol.client import ClusterClient, ProducerId
from protocol.client.retry import RetryPolicy
from protocol.client.transaction_calls import FENCED
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import TopicPartition
from transfer.kafka.transaction import Transaction

_log = logging.getLogger("isthmus.transfer")

_IDS = 4
"""A producer whose last transaction stays unfinished at the brokers goes on under another id."""
STUCK_S = 5.0
ASK_AGAIN_S = 0.1
NO_PERMIT = "this worker may not write any more"
_INIT_RETRY = RetryPolicy(total_s=STUCK_S, longest_wait_s=0.2)
_INIT_SOON = RetryPolicy(total_s=1.0, longest_wait_s=0.2)
"""Where a broker is silent, its partitions keep a transaction from completing: another id is taken soon."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """How transactions of a link are named and when they end."""

    transactional_id: str
    timeout_ms: int = 30_000
    """After which the coordinator aborts what a dead producer has left open."""
    interval_s: float = 0.2
    max_bytes: int = 64 << 20
    end_s: float = 10.0
    """A partition that keeps a transaction from ending for so long is left out."""


class FencedError(Exception):
    """The coordinator has given the id to another, or has ended the transaction by itself."""


class UnknownError(Exception):
    """What becomes of the transaction is not known; the next epoch ends it (KIP-360)."""


class TransactionalProducer:
    """One producer id at a time, under one of a few transactional ids.

    `register` stores that an id may have a transaction open, before it has one; `may_write` is asked before
    an id is taken and before it counts as taken; `fenced` is told when somebody else has taken the id, so
    that whether this process may write at all has to be found out.
    """

    def __init__(
        self,
        client: ClusterClient,
        settings: TransactionSettings,
        register: Callable[[str], Awaitable[None]],
        may_write: Callable[[], bool],
        fenced: Callable[[], None],
    ) -> None:
        self._fenced = fenced
        self._client = client
        self._settings = settings
        self._register = register
        self._may_write = may_write
        self._slot = 0
        self._times_fenced = 0
        self._identifying = asyncio.Lock()
        self._next_epoch = False
        self.id: ProducerId | None = None
        """The last one; in `ready` the one to write with."""
        self.problem = ""
        """What it waits for, for the status."""

    @property
    def transactional_id(self) -> str:
        """In use now."""
        base = self._settings.transactional_id
        if self._times_fenced:
            base = f"{base}.anew-{self._times_fenced}"
        return f"{base}.{self._slot}" if self._slot else base

    @property
    def ready(self) -> bool:
        """Whether it has its id, so that nothing of an earlier one with it is open."""
        return self.id is not None and not self._next_epoch

    async def identified(self, *, soon: bool) -> tuple[ProducerId, bool]:
        """The id to write with, and whether it is new. `soon`: do not wait long for a transaction to
        complete. Raises ProtocolError.
        """
        async with self._identifying:
            while True:
                while not self._may_write():  # noqa: ASYNC110 (a permit sets no event)
                    await asyncio.sleep(ASK_AGAIN_S)
                if self.id is not None and not self._next_epoch:
                    return self.id, False
                try:
                    taken = await self._take(self.id, _INIT_SOON if soon else _INIT_RETRY)
                except KafkaError as error:
                    if error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                        self.go_on_elsewhere()
                    elif error.code in FENCED and self.id is not None:
                        self.leave()  # perhaps another's by now: whether we may have one is asked first
                        continue
                    raise
                if self._may_write():
                    self.id, self._next_epoch = taken, False
                    return taken, True

    async def _take(self, before: ProducerId | None, retry: RetryPolicy) -> ProducerId:
        if before is None:
            await self._register(self.transactional_id)
        return await self._client.init_transactional_producer(
            self.transactional_id, self._settings.timeout_ms, before, retry=retry
        )

    async def add(
        self, producer: ProducerId, tps: Collection[TopicPartition], now: Transaction, stirred: asyncio.Event
    ) -> Mapping[TopicPartition, ErrorCode]:
        """The coordinator's answer; none where the transaction is spoiled before it comes (`stirred` is set
        then): its end need not wait for it, and the next epoch ends what it may still begin."""
        asked = asyncio.ensure_future(self._client.add_to_transaction(self.transactional_id, producer, tps))
        asked.add_done_callback(lambda _: stirred.set())
        try:
            while not asked.done() and not now.spoiled:
                stirred.clear()
                await stirred.wait()
            return await asked if asked.done() else {}
        finally:
            asked.cancel()
            stirred.set()  # by others meanwhile, perhaps

    async def end(self, producer: ProducerId, *, commit: bool) -> None:
        """Asks until the outcome is known. Raises FencedError, and UnknownError when a commit may not be
        asked for any more.

        A request without an answer may still be read by the coordinator when the next transaction is open,
        and would end it (KAFKA-17754): that one has another epoch.
        """
        pause, unheard = 0.005, False
        while True:
            try:
                await self._client.end_transaction(self.transactional_id, producer, commit=commit)
                if unheard:
                    self.ask_for_next_epoch()
                return
            except KafkaError as error:
                if error.code in FENCED:
                    raise FencedError(str(error)) from error
                if commit and error.code is ErrorCode.TRANSACTION_ABORTABLE:  # from EndTxn v4 on (KIP-890)
                    raise UnknownError(str(error)) from error
                self.problem = f"transactions: {error}"
            except ProtocolError as error:
                self.problem, unheard = f"transactions: {error}", True
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)
            if commit and not self._may_write():  # what was sent may count or not, no more is asked for
                raise UnknownError(f"whether it was committed is not known, and {NO_PERMIT}")

    def ask_for_next_epoch(self) -> None:
        """Nothing late of the last transaction may get into the next one (KIP-360)."""
        self._next_epoch = self.id is not None

    def leave(self) -> None:
        """Whoever has fenced us strikes the id off the record, perhaps only in a moment: taken again, it
        would be one that no successor finds.
        """
        self._times_fenced += 1
        self._fenced()
        self._slot, self.id, self._next_epoch = 0, None, False

    def go_on_elsewhere(self) -> None:
        """The last transaction is decided, but a partition of it cannot be told (its leader is away)."""
        stuck = self.transactional_id
        self._slot = (self._slot + 1) % _IDS
        self.id, self._next_epoch = None, False
        _log.warning("%s is still completing, going on as %s", stuck, self.transactional_id)
