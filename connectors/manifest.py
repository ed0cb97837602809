"""The manifest: everything a backup holds, in one JSON document that is written last.

Owns the models and their stored form. A backup whose manifest is not in the catalogue does not exist; the
objects it would have named are left-overs. It must not know S3, Kafka or how the objects are encoded.
Access rules and schemas are not part of these backups: there is no field that could say so falsely.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from connectors.errors import DamagedBackup
from protocol.types import TopicPartition
from transfer.ledger import LedgerError, PartitionLedger

FORMAT_VERSION = 1

BackupFormat = Literal["segment", "avro"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ObjectEntry(_Model):
    """One data object: a range of one partition."""

    key: str
    bytes: int
    sha256: str
    records: int
    batches: int
    first_offset: int
    last_offset: int
    """Last offset the object covers; after compaction there may be no record at it."""
    first_timestamp: int
    max_timestamp: int
    max_batch_bytes: int
    index_key: str | None = None
    index_sha256: str | None = None


class HeldUp(_Model):
    """A transaction was open when the backup began: what stands from its first record on is not
    in the backup, nor what others had committed there."""

    offsets: int
    """From there to the end of the log: records, and markers of transactions."""
    since_ms: int | None = None
    """Time of the transaction's first record; None: it could not be read."""
    producer_id: int | None = None

    def text(self, tp: TopicPartition, end_offset: int) -> str:
        whose = "" if self.producer_id is None else f" of producer {self.producer_id}"
        return (
            f"{tp.topic}-{tp.partition}: {self.offsets} offsets from {end_offset} on are not in the backup: "
            f"a transaction{whose} was open there"
        )


class PartitionBackup(_Model):
    partition: int
    start_offset: int
    """The log start when the backup began."""
    end_offset: int
    """Behind the last offset that belongs to the backup: the stable end when the backup began."""
    records: int
    objects: tuple[ObjectEntry, ...]
    ledger: dict[str, Any]
    """`transfer.ledger.PartitionLedger` in JSON: lineage, runs, counts, digest, gaps."""
    held_up: HeldUp | None = None

    def read_ledger(self) -> PartitionLedger:
        return PartitionLedger.from_json(self.ledger)

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.objects)


class TopicBackup(_Model):
    name: str
    topic_id: str
    """Kafka's text form; empty when the cluster has no topic ids."""
    replication_factor: int
    configs: dict[str, str]
    """Overrides only; what the cluster or its defaults said is not part of a topic."""
    effective: dict[str, str]
    """Values in force that decide whether a target takes the records, e.g. `max.message.bytes`."""
    partitions: tuple[PartitionBackup, ...]

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)


class GroupOffset(_Model):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None


class GroupBackup(_Model):
    group: str
    state: str
    protocol_type: str
    offsets: tuple[GroupOffset, ...]


class Manifest(_Model):
    format_version: int = FORMAT_VERSION
    backup_id: str
    cluster_id: str
    format: BackupFormat
    compression: str
    """Of the record blocks in `avro` objects; `segment` objects keep what each batch had."""
    started_ms: int
    finished_ms: int
    topics: tuple[TopicBackup, ...]
    groups: tuple[GroupBackup, ...]
    problems: tuple[str, ...] = ()
    """What the backup could not hold, in words; each has its gap where offsets are concerned."""

    @property
    def records(self) -> int:
        return sum(topic.records for topic in self.topics)

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.objects())

    @property
    def gaps(self) -> int:
        """Offsets inside gaps, over all partitions."""
        return sum(p.read_ledger().missing for topic in self.topics for p in topic.partitions)

    @property
    def exit_code(self) -> int:
        """0 = everything is in it; 3 = finished with gaps or problems."""
        return 3 if self.problems or self.gaps else 0

    def objects(self) -> list[ObjectEntry]:
        return [
            entry for topic in self.topics for partition in topic.partitions for entry in partition.objects
        ]

    def held_up(self) -> list[tuple[TopicPartition, int, HeldUp]]:
        """Partitions that end before an open transaction, and where."""
        return [
            (TopicPartition(topic.name, partition.partition), partition.end_offset, partition.held_up)
            for topic in self.topics
            for partition in topic.partitions
            if partition.held_up is not None
        ]

    def topic(self, name: str) -> TopicBackup:
        for topic in self.topics:
            if topic.name == name:
                return topic
        held = ", ".join(topic.name for topic in self.topics) or "none"
        raise KeyError(f"backup {self.backup_id} holds no topic {name!r}; it holds: {held}")

    def partition(self, tp: TopicPartition) -> PartitionBackup:
        for partition in self.topic(tp.topic).partitions:
            if partition.partition == tp.partition:
                return partition
        raise KeyError(f"backup {self.backup_id} holds no partition {tp.partition} of {tp.topic}")


def encode(manifest: Manifest) -> bytes:
    """The stored form: the manifest and the SHA-256 of its canonical JSON."""
    body = manifest.model_dump(mode="json")
    return json.dumps({"sha256": _digest(body), "manifest": body}, indent=1).encode()


def decode(data: bytes, where: str) -> Manifest:
    """Reads what `encode` wrote. Raises DamagedBackup naming `where`."""
    try:
        stored = json.loads(data)
        body = stored["manifest"]
        version = body["format_version"]
        if version != FORMAT_VERSION:
            raise DamagedBackup(f"{where}: format version {version}; this code reads {FORMAT_VERSION}")
        if stored["sha256"] != _digest(body):
            raise DamagedBackup(f"{where}: the manifest's own checksum does not hold")
        manifest = Manifest.model_validate(body)
        for topic in manifest.topics:
            for partition in topic.partitions:
                partition.read_ledger()
    except (ValueError, KeyError, TypeError, ValidationError, LedgerError) as error:
        raise DamagedBackup(f"{where}: not a manifest: {error}") from error
    return manifest


def _digest(body: dict[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
