"""What an audit compares: two sides, pairs of topics, and how their offsets belong together.

Validated once, immutable afterwards. Knows nothing of YAML files, command lines or Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from audit.result import DifferenceClass
from connectors.object_store import ObjectStoreSettings
from protocol.client.access import Access


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClusterSide(_Settings):
    """Topics of a running cluster, read committed."""

    kind: Literal["cluster"] = "cluster"
    bootstrap: str
    properties: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """How to be let in: security.protocol, sasl.*, ssl.* (`protocol.client.access`)."""
    name: str = ""

    @property
    def access(self) -> Access:
        return Access(self.bootstrap, self.properties, self.name)

    def __str__(self) -> str:
        return self.name or self.bootstrap


class BackupSide(_Settings):
    """Topics of a backup."""

    kind: Literal["backup"] = "backup"
    store: ObjectStoreSettings
    backup_id: str

    def __str__(self) -> str:
        return f"backup {self.backup_id}"


Side = Annotated[ClusterSide | BackupSide, Field(discriminator="kind")]


class LinkLedger(_Settings):
    """Offsets belong together as the link `source->target` has recorded at its target."""

    kind: Literal["link"] = "link"
    source_alias: str
    target_alias: str
    bootstrap: str
    """Of the link's target, where its progress is."""
    identical: bool = False
    """Its mirrors have the source's offsets; on record is only what they lack."""
    origins: Literal["none", "all", "others"] = "none"
    """Whether its copies say where they have been (`origin_headers`), and whether it copies all records or
    only others than the target's own."""
    properties: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """How to be let in: security.protocol, sasl.*, ssl.* (`protocol.client.access`)."""

    @property
    def access(self) -> Access:
        return Access(self.bootstrap, self.properties, self.target_alias)


class RestoreLedger(_Settings):
    """Offsets belong together as a finished restore has recorded beside its backup."""

    kind: Literal["restore"] = "restore"
    store: ObjectStoreSettings
    backup_id: str
    restore_id: str


class SameOffsets(_Settings):
    """Every record has the same offset on both sides: a cluster and its backup, or a mirror."""

    kind: Literal["same"] = "same"


class ByContent(_Settings):
    """There is no record of offsets (e.g. MirrorMaker 2 copied): align by content and order."""

    kind: Literal["content"] = "content"


Alignment = Annotated[LinkLedger | RestoreLedger | SameOffsets | ByContent, Field(discriminator="kind")]


class TopicPair(_Settings):
    source: str
    target: str


class SparkSettings(_Settings):
    """The engine. `local[2]` runs on this machine; any other master wants isthmus on its workers."""

    master: str = "local[2]"
    driver_memory: str = "1g"
    java_options: str = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    """The second compiler of the JVM costs more than it gives back on jobs of a minute."""
    shuffle_partitions: int = Field(default=4, ge=1)
    extra: dict[str, str] = {}


class AuditSettings(_Settings):
    source: Side
    target: Side
    topics: tuple[TopicPair, ...] = Field(min_length=1)
    alignment: Alignment = ByContent()
    ignore_headers: tuple[str, ...] = ()
    """Headers that copying may have added, e.g. provenance."""
    tolerate: tuple[DifferenceClass, ...] = ()
    """Classes that are counted but no reason for exit code 3, e.g. duplicates of an at-least-once link."""
    tail_in_flight: bool = False
    """Without a ledger: records missing behind the last one that was found count as pending, not lost."""
    examples: int = Field(default=20, ge=0)
    """At most so many differences of each class are listed with their coordinates."""
    split_records: int = Field(default=500_000, ge=1)
    """At most so many offsets are read by one task."""
    stall_s: float = Field(default=60, gt=0)
    """A range that gives nothing for so long is incomplete."""
    settle_s: float = Field(default=10, ge=0)
    """How long a missing topic, a missing leader or an end that went back must last to be believed."""
    spark: SparkSettings = SparkSettings()

    @property
    def same_offsets(self) -> bool:
        """Whether records belong together by their offsets alone."""
        of = self.alignment
        return isinstance(of, SameOffsets) or (isinstance(of, LinkLedger) and of.identical)
