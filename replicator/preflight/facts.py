"""What the checks before a start have to know of both clusters.

Owns the shapes, pure data, so that every rule can be tried without a cluster; `asking` fills them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from protocol.client import AclOperation, Broker, ConfigEntry, TopicMetadata
from protocol.errors import KafkaError, ProtocolError
from protocol.types import TopicPartition
from replicator.discovery import Found
from replicator.hanging import Hanging
from replicator.settings import LinkSettings

Configs = Mapping[str, Mapping[str, ConfigEntry]]


@dataclass(frozen=True, slots=True)
class Rights:
    """What the link's user may do with one resource, as the broker tells; None: it does not tell."""

    bits: int | None = None

    def lacks(self, *operations: AclOperation) -> list[str]:
        """Names of those that are missing."""
        if self.bits is None:
            return []
        return [one.name for one in operations if not self.bits >> one & 1]


@dataclass(frozen=True, slots=True)
class LogDir:
    """Bytes of one log directory; -1: the broker does not tell (before KIP-827)."""

    broker: int
    path: str
    total: int
    usable: int


@dataclass(slots=True)
class Side:
    """One cluster."""

    alias: str
    cluster_id: str = ""
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    silent: dict[int, str] = field(default_factory=dict)
    """Brokers that cannot be reached at the address they give to clients, and why."""
    caps_in_sync: bool = False
    """Whether a topic with fewer replicas than min.insync.replicas can be written (`needed_in_sync`)."""
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    cluster_rights: Rights = Rights()
    topic_rights: Mapping[str, Rights] = field(default_factory=dict)
    group_rights: Mapping[str, Rights] = field(default_factory=dict)
    configs: Configs = field(default_factory=dict)
    """Settings of the link's topics, under this side's names."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """A broker's settings; empty when they may not be read."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of one copy of each topic."""
    dirs: list[LogDir] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """What could not be asked, and the broker's words."""
    hanging: list[Hanging] = field(default_factory=list)
    cannot_make: dict[str, KafkaError] = field(default_factory=dict)
    """Topics that the link keeps for itself and that this side would not make."""

    def needed_in_sync(self, configured: str, copies: int) -> int:
        """How many of so many replicas have to be in sync for a write, with that min.insync.replicas."""
        return min(int(configured), copies) if self.caps_in_sync else int(configured)


@dataclass(slots=True)
class Facts:
    """Both, and what the link would do."""

    settings: LinkSettings
    source: Side
    target: Side
    found: Found = field(default_factory=Found)
    groups: list[str] = field(default_factory=list)
    """Groups of the source that the link takes."""
    cannot_create: dict[str, str] = field(default_factory=dict)
    """Mirrors that the target would not create or grow, and its words."""
    own_mirrors: dict[str, str] = field(default_factory=dict)
    """Topics of the target that this link writes: name to topic id (empty: not known)."""
    handed_back: bool = False
    """The link was handed back to MirrorMaker 2 and has not gone on since."""
    copied: dict[TopicPartition, int] = field(default_factory=dict)
    """Source offsets up to which partitions are copied already."""
    mirrormaker: ProtocolError | None = None
    """MirrorMaker 2 still copies, or whether it does is not told."""
    other_links: dict[str, str] = field(default_factory=dict)
    """Topics of the target that another link writes: name to link."""
    gathering: frozenset[str] = frozenset()
    """Links declared beside this one that, as it does, bring topics to the target under their own names."""
    no_transactions: str = ""
    """Why the link may have no transactions at the target."""
    no_idempotence: str = ""
    """Why the link may have no idempotent producer at the target."""
    too_old: dict[str, int] = field(default_factory=dict)
    """Source partitions with records that the target's time limit refuses: `topic-n` to how far (ms)."""
    too_new: dict[str, int] = field(default_factory=dict)
    circles: list[str] = field(default_factory=list)
    """Ways on which records would go round, and what to do, in words."""

    @property
    def mirrors(self) -> dict[str, str]:
        """Source topics and their names at the target."""
        return {name: topic.target_name for name, topic in self.found.wanted.items()}
