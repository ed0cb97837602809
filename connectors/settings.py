"""What a backup and a restore are told to do: validated once, immutable afterwards.

Owns names, defaults and checks. Knows nothing of YAML files, command lines or clusters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from connectors.layout import check_id
from connectors.manifest import BackupFormat
from connectors.object_store import ObjectStoreSettings
from protocol.client.access import Access
from protocol.records.compression import Codec

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def _topic(name: str) -> str:
    if not _TOPIC.fullmatch(name) or name in {".", ".."}:
        raise ValueError(f"{name!r} is no topic name: up to 249 of letters, digits, '.', '_' and '-'")
    return name


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from error
    return text


def _codec(value: object) -> object:
    if isinstance(value, str) and value.upper() in Codec.__members__:
        return Codec[value.upper()]
    return value


TopicName = Annotated[str, AfterValidator(_topic)]
Pattern = Annotated[str, AfterValidator(_pattern)]
BackupId = Annotated[str, AfterValidator(check_id)]
Compression = Annotated[Codec, BeforeValidator(_codec)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BackupSettings(_Settings):
    """A finite snapshot of some topics and of the groups that read them."""

    backup_id: BackupId
    bootstrap: str
    properties: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """How to be let in: security.protocol, sasl.*, ssl.* (`protocol.client.access`)."""
    cluster: str = ""
    """What people call it, for errors."""
    store: ObjectStoreSettings
    topics: tuple[TopicName, ...] = Field(min_length=1)
    """Literal names; one that does not exist is an error."""
    groups: tuple[Pattern, ...] = (".*",)
    """Regular expressions for whole names."""
    format: BackupFormat = "segment"
    avro_codec: Literal["null", "deflate", "snappy"] = "deflate"
    object_bytes: int = Field(default=64 << 20, ge=1)
    """An object is closed at the first batch boundary behind this size."""
    part_bytes: int = Field(default=8 << 20, ge=1)
    partitions_at_once: int = Field(default=8, ge=1)
    stall_s: float = Field(default=120, gt=0)
    """A partition that gives nothing for so long is left out, with a gap."""

    @property
    def access(self) -> Access:
        return Access(self.bootstrap, self.properties, self.cluster)


class RestoreSettings(_Settings):
    """Topics and groups of one backup, into a cluster that does not have them."""

    backup_id: BackupId
    bootstrap: str
    properties: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """How to be let in: security.protocol, sasl.*, ssl.* (`protocol.client.access`)."""
    cluster: str = ""
    """What people call it, for errors."""
    store: ObjectStoreSettings
    topics: tuple[TopicName, ...] = ()
    """Names in the backup; empty = all."""
    rename: dict[TopicName, TopicName] = {}
    prefix: str = ""
    """Put before every topic name that `rename` does not name."""
    groups: tuple[Pattern, ...] = (".*",)
    rename_groups: dict[str, str] = {}
    replication_factor: int | None = Field(default=None, ge=1)
    """By default the backup's, or as many brokers as there are."""
    restore_id: BackupId | None = None
    """By default derived from the target and the names, so that the same command goes on where it stopped."""
    compression: Compression = Codec.LZ4
    """Of batches that are built anew (`avro` backups)."""
    partitions_at_once: int = Field(default=8, ge=1)
    stall_s: float = Field(default=120, gt=0)

    @property
    def access(self) -> Access:
        return Access(self.bootstrap, self.properties, self.cluster)

    def target_topic(self, name: str) -> str:
        return self.rename.get(name, self.prefix + name)

    def target_group(self, name: str) -> str:
        return self.rename_groups.get(name, name)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a long job is; `total` is 0 while it is not known."""

    phase: str
    done: int
    total: int


Report = Callable[[Progress], None]


def quiet(_: Progress) -> None:
    """For callers that show no progress."""


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)
