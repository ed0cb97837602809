"""Small compacted topics in which links keep their own records: progress, offset syncs, checkpoints,
heartbeats.

Owns creating, appending and reading them back. One partition, last value of a key wins, so writing a record
twice does no harm. Knows nothing about what the records mean.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from protocol.client import EARLIEST, LATEST, ClusterClient, NewTopic
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.records.building import build_batch
from protocol.records.compression import Codec
from protocol.records.header import iter_headers
from protocol.records.record import Record
from protocol.types import TopicPartition
from replicator.open_transactions import OpenTransactions, Row
from replicator.whole_batches import whole_batches

_COMPACT = {"cleanup.policy": "compact"}
_ROWS_PER_BATCH = 500
_BYTES_PER_BATCH = 512 << 10
_UNKNOWN_S: Final = 1.0
"""Who only looks waits so long for a topic that no broker asked knows: it may be there since just now."""


class NotKeptError(ProtocolError):
    """The topic would lose what is stored in it, and the link would begin anew: all would be copied twice."""

    def __init__(self, topic: str, policy: str) -> None:
        super().__init__(f"{topic} has cleanup.policy={policy}, so that it loses what the link keeps there")
        self.to_do = f"set cleanup.policy=compact on {topic}"


class InternalTopic:
    """One such topic. `configs` are added to `cleanup.policy=compact` when it is created."""

    def __init__(
        self,
        client: ClusterClient,
        name: str,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        must_keep: bool = False,
    ) -> None:
        """`must_keep`: one whose rows are dropped by age or size is refused."""
        self.name = name
        self._client = client
        self._tp = TopicPartition(name, 0)
        self._replication_factor = replication_factor
        self._configs = {**_COMPACT, **(configs or {})}
        self._position = -1
        self._transactions = OpenTransactions()
        self._ensured = False
        self._must_keep = must_keep

    async def ensure(self) -> None:
        """Creates the topic if it is not there. Raises NotKeptError."""
        found = (await self._client.metadata([self.name])).topics.get(self.name)
        if found is not None and not found.error:
            if self._must_keep:
                await self._check_kept()
            return
        topic = NewTopic(self.name, 1, self._replication_factor, self._configs)
        try:
            await self._client.create_topics([topic])
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return
            if error.code is ErrorCode.INVALID_REPLICATION_FACTOR:
                error.to_do = (
                    "add brokers, or set its replication factor lower: isthmus links check LINK names the"
                    " setting"
                )
            raise

    async def _check_kept(self) -> None:
        try:
            configs = (await self._client.describe_configs([self.name], keys=["cleanup.policy"]))[self.name]
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                return  # as Kafka Connect: whoever made the topic is trusted
            raise
        policy = configs.get("cleanup.policy")
        if policy is not None and policy.value is not None and policy.value != "compact":
            raise NotKeptError(self.name, policy.value)
        self._must_keep = False

    async def ensure_once(self) -> None:
        """As `ensure`, but asks only until it has succeeded."""
        if not self._ensured:
            await self.ensure()
            self._ensured = True

    async def append(self, rows: Sequence[Row]) -> None:
        """Writes rows in order, with acks=all. After a KafkaError that `is_gone`, none is there any more."""
        for batch in batches_of(rows):
            await self.produce(batch)

    async def produce(self, batch: bytes) -> None:
        """The same with one batch."""
        try:
            await self._client.produce(self._tp, batch)
        except KafkaError as error:
            if is_gone(error):
                self._ensured = False
            raise

    async def read_new(self, *, must_exist: bool = False) -> list[Row]:
        """Rows behind those read before, up to what is there now. A missing topic has none.

        Rows of a transaction come when it is committed, or never; nobody else's wait for them, as they would
        with `read_committed`. Raises KafkaError when the broker gives nothing although there is more: half of
        the rows would be taken for all of them. With `must_exist` also for a topic that the broker does not
        know (yet).
        """
        retry = self._client.retry
        if self._position < 0 and not must_exist:  # one that was never there is not waited for long
            retry = replace(retry, unknown_topic_s=_UNKNOWN_S)
        try:
            end = (await self._client.list_offsets({self._tp: LATEST}, retry=retry))[self._tp].offset
            if self._position < 0:
                self._position = (await self._client.list_offsets({self._tp: EARLIEST}))[self._tp].offset
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not must_exist:
                return []
            raise
        rows: list[Row] = []
        transactions = self._transactions.copy()
        position = self._position
        while position < end:
            found = await whole_batches(self._client, self._tp, position)
            for at, header in iter_headers(found.batches):
                if header.next_offset > position:
                    rows += transactions.settled(found.batches, at, header, position)
            position = found.next_offset
        # Only now: after a failure all of it is read again.
        self._position, self._transactions = position, transactions
        return rows

    def open_transaction(self, key: bytes) -> tuple[int, int] | None:
        """Producer id and first offset of a transaction with a row of that key and no marker as last read."""
        return self._transactions.holding(key)


def is_gone(error: KafkaError) -> bool:
    """Whether the topic is not there any more."""
    return error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def batches_of(rows: Sequence[Row]) -> list[bytes]:
    """Rows as batches to produce."""
    now = time.time_ns() // 1_000_000
    made: list[bytes] = []
    batch: list[Record] = []
    size = 0
    for key, value in rows:
        batch.append(Record(0, now, key, value))
        size += len(key) + len(value or b"")
        if len(batch) >= _ROWS_PER_BATCH or size >= _BYTES_PER_BATCH:
            made.append(build_batch(batch, codec=Codec.LZ4))
            batch, size = [], 0
    if batch:
        made.append(build_batch(batch, codec=Codec.LZ4))
    return made
