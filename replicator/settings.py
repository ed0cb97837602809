"""What a link is told to do: validated once, immutable afterwards.

Owns names, defaults and checks of a link's settings. Where MirrorMaker 2 has a setting, its name is the one
that MM2 users know, in snake case; defaults differ only where MM2's are reported as traps (discovery every
ten minutes, group sync off, replication factor 2). Knows nothing of YAML files or clusters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from protocol.client import NO_RETRIES, ClusterClient
from protocol.client.properties import client_security
from replicator.filters import TopicFilter, check_pattern, split_patterns
from replicator.naming import Naming
from replicator.renaming import Rename, wrong_name

Patterns = Annotated[tuple[str, ...], BeforeValidator(lambda value: _patterns(value))]

TOPICS_EXCLUDE = (r".*[\-\.]internal", r".*\.replica", r"__.*")
GROUPS_EXCLUDE = (r"console-consumer-.*", r"connect-.*", r"__.*")
CONFIG_PROPERTIES_EXCLUDE = (
    r"follower\.replication\.throttled\.replicas",
    r"leader\.replication\.throttled\.replicas",
    r"message\.timestamp\.difference\.max\.ms",
    r"message\.timestamp\.type",
    r"unclean\.leader\.election\.enable",
    r"min\.insync\.replicas",
    r"isthmus\.mirror\.source",
)

_CONNECT_S = 5.0
_ALIAS = re.compile(r"[A-Za-z0-9_-]+")


def is_alias(text: str) -> bool:
    """Whether a cluster may be called so: it becomes part of the names of topics, groups and files."""
    return _ALIAS.fullmatch(text) is not None


class ClusterEnd(BaseModel):
    """One side of a link: the alias that names carry, where its brokers are, and how to be let in there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    alias: str
    bootstrap: str = Field(description="host:port of one or more brokers, separated by commas")
    properties: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Kafka's client settings for security: security.protocol, sasl.*, ssl.* (secrets are never shown)."""

    @field_validator("alias")
    @classmethod
    def _plain(cls, alias: str) -> str:
        if not is_alias(alias):
            raise ValueError(f"alias {alias!r} may hold letters, digits, '-' and '_' only")
        return alias

    def client(self, client_id: str, **options: Any) -> ClusterClient:
        """A client of this cluster, not connected yet. Raises ValueError for wrong security settings."""
        security = client_security(self.properties)
        return ClusterClient(self.bootstrap, client_id=client_id, config=security, name=self.alias, **options)

    def at_once(self, client_id: str = "isthmus-cli") -> ClusterClient:
        """A client for somebody who waits: that nobody lets it in is said after one try at each address."""
        return self.client(client_id, connect_timeout_s=_CONNECT_S, first_contact=NO_RETRIES)


class Flow(BaseModel):
    """How much is on the way at a time (bytes)."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    max_bytes_in_flight: int = Field(default=32 << 20, ge=1 << 20)
    """Read and not acknowledged, in each process of the link: what its memory is bounded by."""
    partition_bytes_in_flight: int = Field(default=4 << 20, ge=1 << 16)
    """The same of one partition."""
    fetch_max_bytes: int = Field(default=4 << 20, ge=1 << 16)
    """Of one answer of a source broker."""
    fetch_partition_max_bytes: int = Field(default=1 << 20, ge=1 << 12)
    """Of one partition in it."""
    fetch_max_wait_ms: int = Field(default=500, ge=1, le=30_000)
    """How long a source broker may wait for records before it answers."""
    fetch_connections_per_broker: int = Field(default=2, ge=1, le=16)
    """To each source broker: its partitions are spread over them."""
    produce_request_bytes: int = Field(default=1 << 20, ge=1 << 16)
    """Of one request to a target broker."""


class TakeOver(BaseModel):
    """Where MirrorMaker 2 keeps the progress of this link, at the target."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    offsets_topic: str
    connector: str = "MirrorSourceConnector"
    group: str
    """Group of MirrorMaker 2's workers: while it has members, they still copy."""
    status_topic: str = ""
    """Where those workers write how their connectors stand: one that is stopped there, or gone, copies
    nothing, whatever else they run. Empty: not known."""
    partitions: int = Field(default=25, ge=-1)
    """Of that topic, where it has to be made (Connect's default); -1: the target's default."""

    @classmethod
    def of(cls, source: str) -> Self:
        """As MirrorMaker 2 names them unless it is told otherwise."""
        return cls(offsets_topic=f"mm2-offsets.{source}.internal", group=f"{source}-mm2")


class LinkSettings(BaseModel):
    """One direction of copying, `source->target`. What stands under a setting is its meaning in
    `docs/link-settings.md` too."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    source: ClusterEnd
    target: ClusterEnd

    offsets: Literal["translated", "identical"] = "translated"
    """`identical`: topics at the target are read-only mirrors, batch for batch (brokers of isthmus only)."""
    on_truncation: Literal["stop", "cut"] = "stop"
    """With identical offsets, where the source has lost what the mirror has: wait for a person, or cut it."""

    topics: Patterns = (".*",)
    """Topics that are copied: regular expressions for the whole name."""
    topics_exclude: Patterns = TOPICS_EXCLUDE
    """Topics that are not copied, whatever `topics` says."""
    groups: Patterns = (".*",)
    """Consumer groups whose positions are translated."""
    groups_exclude: Patterns = GROUPS_EXCLUDE
    """Consumer groups that are left alone, whatever `groups` says."""
    config_properties_exclude: Patterns = CONFIG_PROPERTIES_EXCLUDE
    """Settings of topics that are the target's own."""
    use_defaults_from: Literal["source", "target"] = "target"
    """Whose defaults hold at the target for settings that a source topic does not set itself."""

    naming: Literal["prefix", "identity"] = "prefix"
    """How topics are called at the target: `east.orders`, or `orders` as at the source."""
    separator: str = Field(default=".", min_length=1, max_length=8)
    """Between the source's alias and the topic's name."""
    internal_separator: bool = True
    """Internal topics carry `separator` too; else a dot (KIP-949)."""
    rename: tuple[Rename, ...] = ()
    """Names at the target by pattern, before `naming`: the first that matches the whole name counts."""
    origin_headers: bool = False
    """Records carry the clusters and topics that they went through and never come back into one of these
    topics; so links with identical names may form a circle, if all of them do it."""
    origin_headers_ignored: bool = False
    """With `origin_headers`: nothing is left out for where it has been. For failback, to a target that has
    lost what it had; what is still there comes twice. Such a link breaks no circle."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where partitions begin that are there when the link is first asked for their topics (at its first
    start, or by wider filters later). Those born afterwards begin at their start."""

    replication_factor: int = Field(default=-1, ge=-1)
    """Of topics that the link makes at the target; -1: the target's default."""
    internal_replication_factor: int = Field(default=-1, ge=-1)
    """Of the progress topic, and of the three topics for MirrorMaker 2's tools where theirs is not set; -1:
    the cluster's default."""
    offset_syncs_topic_replication_factor: int | None = Field(default=None, ge=-1)
    """Of `mm2-offset-syncs.….internal`."""
    checkpoints_topic_replication_factor: int | None = Field(default=None, ge=-1)
    """Of `….checkpoints.internal`."""
    heartbeats_topic_replication_factor: int | None = Field(default=None, ge=-1)
    """Of `heartbeats`."""

    refresh_topics: bool = True
    """`false`: only topics that are there when the link starts."""
    refresh_topics_interval_s: float = Field(default=1.0, gt=0)
    """How often new topics and partitions are looked for, and ends of the source for the lag (those at least
    each 5 s)."""
    sync_topic_configs: bool = True
    """Settings of the source's topics follow at the target, also after they were made."""
    sync_topic_configs_interval_s: float = Field(default=30.0, gt=0)
    """How often settings of topics are compared."""
    sync_topic_acls: bool = True
    """ACLs of the link's topics and, beyond MirrorMaker 2, of its groups."""
    acls_report_only: bool = False
    """Says in the status what would be granted and revoked, and changes nothing (somebody else owns ACLs)."""
    acls_revoke_at_most: int | None = Field(default=None, ge=0)
    """Allows so many ACLs to be revoked at once, whatever the source shows. Unset: ten, or a quarter of what
    the link has granted, and none while the source shows no ACLs at all."""
    sync_topic_acls_interval_s: float = Field(default=30.0, gt=0)
    """How often ACLs are compared."""
    sync_group_offsets: bool = True
    """Positions of groups are written at the target, where nobody reads with the group there, and only
    forwards: a group that somebody has set further on stays there, one that somebody has taken back is set to
    where the source's group stands within 5 s (30 s with 300 groups and more), which is logged. To reset a
    group at the target for good, add it to `groups_exclude` first (`isthmus links set`)."""
    groups_on_rewind: Literal["keep", "follow"] = "keep"
    """A group that somebody took back at the source while it was empty there: kept where it is at the target,
    or taken back too, if this link had set it and it is empty there."""
    groups_on_delete: Literal["keep", "delete"] = "keep"
    """A group that is gone at the source: the same."""
    sync_group_offsets_interval_s: float = Field(default=1.0, gt=0)
    """How often positions of groups are translated, and written where they have changed."""
    emit_checkpoints: bool = True
    """Checkpoints for MirrorMaker 2's tools (`RemoteClusterUtils.translateOffsets`)."""
    emit_checkpoints_interval_s: float = Field(default=1.0, gt=0)
    """How often checkpoints are written."""
    emit_offset_syncs: bool = True
    """Offset syncs for MirrorMaker 2's tools, and for one that takes over from the link."""
    emit_offset_syncs_interval_s: float = Field(default=1.0, gt=0)
    """How often offset syncs are written."""
    offset_syncs_topic_location: Literal["source", "target"] = "source"
    """Where the topic of offset syncs is."""
    emit_heartbeats: bool = True
    """Heartbeats in `heartbeats` of both clusters."""
    emit_heartbeats_interval_s: float = Field(default=1.0, gt=0)
    """How often heartbeats are written."""
    heartbeats_replication: bool = True
    """The source's `heartbeats` topic is copied, whatever the filters say; never with identical offsets."""

    shared: bool = True
    """Any number of processes may run this link and share its partitions; False: one process, all of it."""
    worker_session_timeout_s: float = Field(default=8.0, ge=1, le=1800)
    """A worker that the target's group coordinator has not heard of for so long has lost its partitions."""

    take_over: TakeOver | None = None
    """At its starts the link goes on where MirrorMaker 2 stopped, if that copied last."""
    widens: bool = False
    """Topics that appear while it runs are looked at before they are copied (ad-hoc copies)."""
    appends: bool = True
    """`False`: topics that appear are left out where the target's topic holds records of something else."""
    progress_interval_s: float = Field(default=0.5, gt=0, le=60)
    """Progress is stored at the latest after so long."""
    progress_bytes: int = Field(default=14 << 20, ge=1 << 16)
    """Progress is stored at the latest after so many acknowledged bytes."""
    exactly_once: bool = False
    """Data and progress are written in transactions: consumers of the mirrors that read committed see each
    record once, whatever is killed or cut."""
    transaction_interval_s: float = Field(default=0.2, gt=0, le=60)
    """How long a transaction takes in data: readers wait so long, and each end costs a few round trips."""
    transaction_timeout_s: float = Field(default=30.0, ge=3, le=900)
    """After so long the target aborts what a link that is gone for good has left open."""
    retry_refused_s: float = Field(default=30.0, gt=0)
    """A partition whose batch was refused is tried again this often."""
    on_gap: Literal["record", "stop"] = "record"
    """What is lost to the copy is always on record; `stop`: its partition goes on once it is acknowledged (a
    mirror with identical offsets drops what it has before the gap then, and keeps it until then)."""
    on_recreated: Literal["append", "new_mirror", "stop"] = "append"
    """A source topic that was deleted and made again, or its mirror that was: copied into the mirror of that
    name; into a new one, `<mirror>.mirror-<n>`; or not before somebody has acknowledged it."""
    on_refused: Literal["stop", "dead_letter"] = "stop"
    """A batch that is too large or has a refused time: its partition waits, or it is put aside, on record."""
    rate_limit: int = Field(default=0, ge=0)
    """Bytes per second that all workers of the link read together; 0: no limit."""
    metrics_max_series: int = Field(default=10_000, ge=0)
    """For single partitions; those beyond share series with the topic `other`."""
    drain_s: float = Field(default=10.0, ge=0)
    """How long a stopping link waits for what is on its way."""
    flow: Flow = Flow()
    """How much is on the way at a time."""

    @field_validator("separator")
    @classmethod
    def _legal(cls, separator: str) -> str:
        if wrong_name(f"a{separator}b"):
            raise ValueError("may hold what topic names may: letters, digits, '.', '_' and '-' of ASCII")
        return separator

    @model_validator(mode="after")
    def _two_clusters(self) -> Self:
        if self.source.alias == self.target.alias:
            raise ValueError(f"source and target both have the alias {self.source.alias!r}")
        for alias in (self.source.alias, self.target.alias):
            if self.separator in alias:
                raise ValueError(f"alias {alias!r} holds the separator {self.separator!r}")
        if self.offsets == "identical":
            self._refuse_for_identical()
        if self.on_recreated == "new_mirror" and self.origin_headers:
            raise ValueError(
                "on_recreated: new_mirror gives mirrors names by which origin_headers cannot tell where a"
                " record has been: use append or stop"
            )
        if self.origin_headers_ignored and not self.origin_headers:
            raise ValueError("origin_headers_ignored is for links with origin_headers: true")
        return self

    def _refuse_for_identical(self) -> None:
        wrong = {
            "naming": self.naming != "identity",
            "rename": bool(self.rename),
            "origin_headers": self.origin_headers,
            "start": self.start != "earliest",
            "take_over": self.take_over is not None,
            "on_recreated": self.on_recreated != "append",
            "groups_on_rewind": self.groups_on_rewind != "keep",
            "groups_on_delete": self.groups_on_delete != "keep",
        }
        if any(wrong.values()):
            raise ValueError(
                f"offsets: identical copies batches as they are, under their names and from their start:"
                f" {', '.join(name for name, is_wrong in wrong.items() if is_wrong)} cannot be set so"
                " (naming has to be identity)"
            )

    def names(self) -> Naming:
        """How topics are called at the target."""
        return Naming(
            self.source.alias,
            self.target.alias,
            self.separator,
            self.naming == "identity",
            self.internal_separator,
            self.rename,
            self._copies_heartbeats,
        )

    def topic_filter(self) -> TopicFilter:
        """Which topics are copied."""
        return TopicFilter(self.names(), self.topics, self.topics_exclude, heartbeats=self._copies_heartbeats)

    @property
    def _copies_heartbeats(self) -> bool:
        """A mirror of them would be read-only, and the target writes its own."""
        return self.heartbeats_replication and self.offsets == "translated"

    @property
    def notes_groups(self) -> bool:
        """Whether it has to be known later which positions of groups the link has set."""
        return self.groups_on_rewind == "follow" or self.groups_on_delete == "delete"

    @property
    def name(self) -> str:
        """The link as people write it: `east->west`."""
        return f"{self.source.alias}->{self.target.alias}"

    @property
    def progress_topic(self) -> str:
        """The internal topic at the target that holds progress and ledger."""
        return progress_topic(self.source.alias, self.target.alias)

    @property
    def workers_group(self) -> str:
        """The group at the target by which processes of this link share it."""
        return self.progress_topic.removesuffix(".internal")

    @property
    def transactional_id(self) -> str:
        """Of its producers, the beginning of the name."""
        return self.workers_group

    @property
    def dead_letter_topic(self) -> str:
        """At the target: what it refused for good (`on_refused: dead_letter`)."""
        return f"isthmus-dead-letters.{self.source.alias}-to-{self.target.alias}.internal"


def progress_topic(source: str, target: str) -> str:
    """Ends in `.internal`, so MM2's and our own default filters leave it alone."""
    return f"isthmus-link.{source}-to-{target}.internal"


def is_progress_topic(name: str) -> bool:
    """Of any link, by its look."""
    return name.startswith("isthmus-link.") and name.endswith(".internal")


def _patterns(value: object) -> object:
    """A list of regular expressions, or one text with commas as MM2 writes it; all are checked."""
    if isinstance(value, str):
        return split_patterns(value)
    if isinstance(value, list | tuple):
        for item in value:
            check_pattern(str(item))
        return tuple(item for item in value if item != "")
    return value
