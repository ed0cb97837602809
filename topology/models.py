"""The declarative model of a topology: what one YAML file may say.

Owns names, types, defaults and the rules that concern one value. It must not read files (`load`), compare
values with each other (`references`) or start anything (`supervisor`). Setting names of brokers and topics
are Kafka's own and are checked against the broker's table in `references`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from protocol.client import parse_bootstrap
from replicator.settings import Flow
from topology.network.quantities import duration, rate, share

ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
SITE_PAIR = re.compile(
    r"(?P<source>[A-Za-z0-9][A-Za-z0-9_-]*?)(?P<arrow><?->)(?P<target>[A-Za-z0-9][A-Za-z0-9_-]*)"
)
LINK = re.compile(r"(?P<source>[A-Za-z0-9][A-Za-z0-9_-]*)->(?P<target>[A-Za-z0-9][A-Za-z0-9_-]*)")
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

Port = Annotated[int, Field(ge=0, le=65535)]
"""A TCP port; 0 chooses a free one when the topology is started, and keeps it."""


def _alias(value: str) -> str:
    if not ALIAS.fullmatch(value):
        raise ValueError(f"'{value}' is not a name: use letters, digits, '_' and '-'")
    return value


def _group(value: object) -> object:
    """ZooKeeper's own groups are numbers, so YAML has read one."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _link(value: str) -> str:
    if not LINK.fullmatch(value):
        raise ValueError(f"'{value}' is not a link: write source->target, for example east->west")
    return value


def _site_pair(value: str) -> str:
    if not SITE_PAIR.fullmatch(value):
        raise ValueError(
            f"'{value}' names no two sites: write a<->b for both directions between two datacenters, or a->b"
        )
    return value


def _topic(value: str) -> str:
    if not TOPIC.fullmatch(value) or value in {".", ".."}:
        raise ValueError(f"'{value}' is not a topic name: up to 249 of letters, digits, '.', '_' and '-'")
    return value


def _addresses(value: str) -> str:
    parse_bootstrap(value)
    return value


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"'{value}' is not a regular expression: {error}") from None
    return value


Alias = Annotated[str, AfterValidator(_alias)]
Addresses = Annotated[str, AfterValidator(_addresses)]
"""`host:port,host:port`"""
Pattern = Annotated[str, AfterValidator(_pattern)]
SitePair = Annotated[str, AfterValidator(_site_pair)]
LinkName = Annotated[str, AfterValidator(_link)]
TopicName = Annotated[str, AfterValidator(_topic)]
Scalar = str | int | float | bool


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SiteLink(Model):
    """What lies between two sites, in one direction. Written `10ms`, `0.1%`, `100mbit`; kept in seconds,
    as a share, in bytes per second."""

    delay: Annotated[float, BeforeValidator(duration)] = 0.0
    jitter: Annotated[float, BeforeValidator(duration)] = 0.0
    loss: Annotated[float, BeforeValidator(share)] = 0.0
    bandwidth: Annotated[float | None, BeforeValidator(rate)] = None
    up: bool = True


class Network(Model):
    """The simulated network between the datacenters. Directions that `links` does not name are `default`."""

    default: SiteLink = SiteLink()
    links: dict[SitePair, SiteLink] = {}


class Datacenter(Model):
    description: str = ""


class ZooKeeperServer(Model):
    """One server of an ensemble. If all have a `group`, quorums are hierarchical and `weight` counts."""

    id: Annotated[int, Field(ge=1, le=255)]
    port: Port = 0
    datacenter: Alias | None = None
    """The cluster's datacenter by default."""
    group: Annotated[Alias | None, BeforeValidator(_group)] = None
    weight: Annotated[int, Field(ge=0)] = 1


class ZooKeeper(Model):
    """The ensemble of one cluster: one server started here (`port`), several (`servers`), or the operator's
    own (`connect`)."""

    port: Port = 0
    heap_mb: Annotated[int, Field(ge=32)] = 64
    connect: str | None = None
    servers: tuple[ZooKeeperServer, ...] = ()

    @model_validator(mode="after")
    def _one_way(self) -> ZooKeeper:
        if self.connect is not None and self.servers:
            raise ValueError("has both servers (started here) and connect (the operator's own): keep one")
        if self.port and self.servers:
            raise ValueError("each of its servers has a port of its own: give `port` there")
        grouped = [server for server in self.servers if server.group is not None]
        if grouped and len(grouped) < len(self.servers):
            alone = ", ".join(str(server.id) for server in self.servers if server.group is None)
            raise ValueError(f"some servers have a group and these have none: {alone}")
        if not grouped and any(server.weight != 1 for server in self.servers):
            raise ValueError("weights count in groups only: give each server a group")
        return self


class Broker(Model):
    id: Annotated[int, Field(ge=0)]
    port: Port = 0
    metrics_port: Port = 0
    datacenter: Alias | None = None
    """Where this broker of a stretched cluster is; the cluster's datacenter by default."""
    rack: str | None = None
    """Defaults to the broker's datacenter."""
    settings: dict[str, Scalar] = {}


class Topic(Model):
    partitions: Annotated[int, Field(ge=1)] = 1
    replication_factor: Annotated[int, Field(ge=1)] = 1
    configs: dict[str, Scalar] = {}


class Cluster(Model):
    """Brokers that share one ZooKeeper ensemble; with `bootstrap_servers`, a cluster that runs elsewhere.

    A stretched cluster has brokers that name another datacenter than the cluster's own.
    """

    datacenter: Alias
    bootstrap_servers: Addresses | None = None
    client: dict[str, Scalar] = Field(default_factory=dict, repr=False)
    """How to be let in there: security.protocol, sasl.*, ssl.* as Java's clients have them (PEM stores, or
    PKCS12 with their passwords)."""
    zookeeper: ZooKeeper = ZooKeeper()
    brokers: tuple[Broker, ...] = ()
    settings: dict[str, Scalar] = {}
    topics: dict[TopicName, Topic] = {}
    autostart: bool = True

    @model_validator(mode="after")
    def _one_kind(self) -> Cluster:
        if self.bootstrap_servers is None and not self.brokers:
            raise ValueError(
                "needs brokers (started here) or bootstrap_servers (a cluster that runs elsewhere)"
            )
        if self.bootstrap_servers is not None and self.brokers:
            raise ValueError("has both brokers and bootstrap_servers: keep one")
        return self


class Link(Model):
    """One direction of copying. Patterns are MirrorMaker 2's: a regular expression for the whole name.

    What nothing is said of here is a setting of `replicator.settings.LinkSettings`, with its meaning;
    `docs/link-settings.md` is generated from both.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    runs_in: Alias | None = None
    """The datacenter of the copying process; the target's by default, as MirrorMaker 2 advises."""
    autostart: bool = True
    """`isthmus up` starts its process."""
    metrics_port: Port = 0
    """Of its process under `isthmus up`; 0 chooses a free one."""
    take_over_mirrormaker: bool = False
    """At its starts the link goes on where MirrorMaker 2 with these aliases stopped, if that copied last."""

    topics: tuple[Pattern, ...] = (".*",)
    topics_exclude: tuple[Pattern, ...] = ()
    r"""Topics that are not copied, besides `.*[\-\.]internal`, `.*\.replica` and `__.*`."""
    groups: tuple[Pattern, ...] = (".*",)
    groups_exclude: tuple[Pattern, ...] = ()
    """Consumer groups that are left alone, besides `console-consumer-.*`, `connect-.*` and `__.*`."""
    naming: Literal["prefix", "identity"] = "prefix"
    separator: Annotated[str, Field(min_length=1, max_length=8)] = "."
    internal_separator: bool = True
    start: Literal["earliest", "latest"] = "earliest"
    offsets: Literal["translated", "identical"] = "translated"
    on_truncation: Literal["stop", "cut"] = "stop"
    origin_headers: bool = False
    origin_headers_ignored: bool = False
    exactly_once: bool = False
    transaction_interval_s: Annotated[float, Field(gt=0, le=60)] = 0.2
    transaction_timeout_s: Annotated[float, Field(ge=3, le=900)] = 30.0

    on_gap: Literal["record", "stop"] = "record"
    on_recreated: Literal["append", "new_mirror", "stop"] = "append"
    on_refused: Literal["stop", "dead_letter"] = "stop"
    retry_refused_s: Annotated[float, Field(gt=0)] = 30.0

    refresh_topics: bool = True
    refresh_topics_interval_s: Annotated[float, Field(gt=0)] = 1.0
    replication_factor: Annotated[int, Field(ge=-1)] = -1
    sync_topic_configs: bool = True
    sync_topic_configs_interval_s: Annotated[float, Field(gt=0)] = 30.0
    config_properties_exclude: tuple[Pattern, ...] = ()
    """Settings of topics that are the target's own, besides MirrorMaker 2's list."""
    use_defaults_from: Literal["source", "target"] = "target"
    sync_topic_acls: bool = True
    sync_topic_acls_interval_s: Annotated[float, Field(gt=0)] = 30.0
    acls_report_only: bool = False
    acls_revoke_at_most: Annotated[int, Field(ge=0)] | None = None

    sync_group_offsets: bool = True
    sync_group_offsets_interval_s: Annotated[float, Field(gt=0)] = 1.0
    groups_on_rewind: Literal["keep", "follow"] = "keep"
    groups_on_delete: Literal["keep", "delete"] = "keep"

    emit_checkpoints: bool = True
    emit_checkpoints_interval_s: Annotated[float, Field(gt=0)] = 1.0
    emit_offset_syncs: bool = True
    emit_offset_syncs_interval_s: Annotated[float, Field(gt=0)] = 1.0
    offset_syncs_topic_location: Literal["source", "target"] = "source"
    emit_heartbeats: bool = True
    emit_heartbeats_interval_s: Annotated[float, Field(gt=0)] = 1.0
    heartbeats_replication: bool = True
    internal_replication_factor: Annotated[int, Field(ge=-1)] = -1
    offset_syncs_topic_replication_factor: Annotated[int, Field(ge=-1)] | None = None
    checkpoints_topic_replication_factor: Annotated[int, Field(ge=-1)] | None = None
    heartbeats_topic_replication_factor: Annotated[int, Field(ge=-1)] | None = None

    rate_limit: Annotated[int, Field(ge=0)] = 0
    worker_session_timeout_s: Annotated[float, Field(ge=1, le=1800)] = 8.0
    progress_interval_s: Annotated[float, Field(gt=0, le=60)] = 0.5
    progress_bytes: Annotated[int, Field(ge=1 << 16)] = 14 << 20
    drain_s: Annotated[float, Field(ge=0)] = 10.0
    metrics_max_series: Annotated[int, Field(ge=0)] = 10_000
    flow: Flow = Flow()


class ObjectStore(Model):
    """Where backups go. `local` starts moto's S3 server here; `s3` is any S3 API that runs elsewhere."""

    kind: Literal["local", "s3"] = "s3"
    datacenter: Alias | None = None
    bucket: Annotated[str, Field(min_length=3, max_length=63)]
    prefix: str = ""
    endpoint: str | None = None
    port: Port = 0
    region: str = "us-east-1"
    access_key: str | None = None
    secret_key: str | None = None


class Backup(Model):
    cluster: Alias
    store: Alias
    topics: tuple[TopicName, ...]
    groups: tuple[Pattern, ...] = (".*",)
    format: Literal["segment", "avro"] = "segment"


class Objective(Model):
    """What may be lost (RPO) and how long it may take (RTO) when a datacenter is lost."""

    rpo_seconds: Annotated[float, Field(ge=0)]
    rto_seconds: Annotated[float, Field(gt=0)]


class Rest(Model):
    """Where `isthmus replicate` answers requests about the links. Relative paths begin at the file's."""

    port: Port
    host: str = "127.0.0.1"
    token_file: Path | None = None
    """What it holds is asked for as a bearer token."""
    keystore: Path | None = None
    """A private key and its certificate in PEM: REST speaks HTTPS, and nothing in clear."""
    client_ca: Path | None = None
    """PEM; only clients with a certificate that it has signed are let in."""

    @model_validator(mode="after")
    def _over_tls(self) -> Rest:
        if self.client_ca is not None and self.keystore is None:
            raise ValueError("client_ca needs a keystore: certificates of clients are shown over TLS only")
        return self


class Topology(Model):
    version: Literal[1]
    name: Alias
    data_directory: Path
    """Relative paths start at the YAML file's folder."""
    datacenters: dict[Alias, Datacenter | None]
    network: Network | None = None
    """Where given, processes of different datacenters reach each other only over simulated links."""
    clusters: dict[Alias, Cluster]
    links: dict[LinkName, Link] = {}
    rest: Rest | None = None
    object_stores: dict[Alias, ObjectStore] = {}
    backups: dict[Alias, Backup] = {}
    objectives: dict[Alias, Objective] = {}

    def link_ends(self, name: str) -> tuple[str, str]:
        """Aliases of source and target of the link `name`."""
        match = LINK.fullmatch(name)
        if match is None or name not in self.links:
            raise KeyError(
                f"no link '{name}' in topology {self.name}: there are {', '.join(self.links) or 'none'}"
            )
        return match["source"], match["target"]

    def link_datacenter(self, name: str) -> str:
        link = self.links[name]
        return link.runs_in or self.clusters[self.link_ends(name)[1]].datacenter
