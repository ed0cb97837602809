"""What a restore did, as it is shown and as it is stored beside the backup.

Owns the models and their stored form. While a restore runs the same object holds its state, which is how a
repeated command knows the topics it made itself. The audit reads the ledgers from here.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from connectors import layout
from connectors.errors import BackupError, DamagedBackup, ObjectMissing
from connectors.group_offsets import RestoredGroup
from connectors.object_store import ObjectStore
from protocol.types import TopicPartition
from transfer.ledger import PartitionLedger


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RestoredPartition(_Model):
    partition: int
    records: int
    bytes: int
    read_back: int
    """Records counted on the target afterwards."""
    start_offset: int
    end_offset: int
    ledger: dict[str, Any]

    def read_ledger(self) -> PartitionLedger:
        return PartitionLedger.from_json(self.ledger)


class RefusedSetting(_Model):
    key: str
    value: str
    reason: str


class RestoredTopic(_Model):
    source: str
    target: str
    topic_id: str
    created: bool
    replication_factor: int
    refused: tuple[RefusedSetting, ...]
    partitions: tuple[RestoredPartition, ...]

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)


class RestoreReport(_Model):
    restore_id: str
    backup_id: str
    target_cluster_id: str
    started_ms: int
    finished_ms: int
    resumed: bool
    topics: tuple[RestoredTopic, ...]
    groups: tuple[RestoredGroup, ...]
    problems: tuple[str, ...]
    """Differences from the backup; any of them makes the exit code 3."""
    warnings: tuple[str, ...]

    @property
    def records(self) -> int:
        return sum(topic.records for topic in self.topics)

    @property
    def bytes(self) -> int:
        return sum(partition.bytes for topic in self.topics for partition in topic.partitions)

    @property
    def exit_code(self) -> int:
        """0 = restored, re-read and counted; 3 = finished, with differences."""
        return 3 if self.problems else 0

    def ledgers(self) -> dict[TopicPartition, PartitionLedger]:
        """By topic and partition of the backup."""
        return {
            TopicPartition(topic.source, partition.partition): partition.read_ledger()
            for topic in self.topics
            for partition in topic.partitions
        }


class TargetState(_Model):
    """A topic that a running restore writes: which one, and where its partitions ended before."""

    target: str
    topic_id: str
    created: bool
    bases: tuple[int, ...]
    own: dict[str, str] = {}
    """Overrides that a topic had which existed before; they are its own again at the end."""


class RestoreState(_Model):
    """The stored object: begun, then done."""

    state: Literal["running", "done"]
    started_ms: int
    target_cluster_id: str
    producer: tuple[int, int]
    """Producer id and epoch. Record n of a partition always has sequence number n, so the broker recognises
    what a killed run had still on its way, whenever it arrives."""
    topics: dict[str, TargetState]
    """By the backup's topic name."""
    report: RestoreReport | None = None
    """While it runs: what was read back, before topics got their settings and groups their offsets."""
    problem: str = ""
    """Why the last run broke off, and what it left."""


def default_restore_id(cluster_id: str, names: dict[str, str]) -> str:
    """The same target and names give the same id, so a repeated command finds its own state."""
    told = json.dumps([cluster_id, names], sort_keys=True)
    return f"restore-{hashlib.sha256(told.encode()).hexdigest()[:16]}"


async def read_state(store: ObjectStore, backup_id: str, restore_id: str) -> RestoreState | None:
    """None when this restore was never begun."""
    key = layout.restore_key(backup_id, restore_id)
    try:
        data = await store.get(key)
    except ObjectMissing:
        return None
    try:
        return RestoreState.model_validate_json(data)
    except ValidationError as error:
        raise DamagedBackup(f"{store.location(key)}: not the state of a restore: {error}") from error


async def write_state(store: ObjectStore, backup_id: str, restore_id: str, state: RestoreState) -> None:
    await store.put(layout.restore_key(backup_id, restore_id), state.model_dump_json(indent=1).encode())


async def read_report(store: ObjectStore, backup_id: str, restore_id: str) -> RestoreReport:
    """Raises BackupError when there is no finished restore of that id."""
    state = await read_state(store, backup_id, restore_id)
    if state is None or state.report is None or state.state != "done":
        raise BackupError(f"there is no finished restore {restore_id} of backup {backup_id}")
    return state.report
