"""What each setting of MirrorMaker 2 means here: a field of a link, or nothing, and then what to do instead.

Owns the table (Kafka: MirrorSourceConfig, MirrorCheckpointConfig, MirrorHeartbeatConfig and the others,
and the settings of clients and workers). Which line of a file counts for which link is `file`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Meaning:
    """A field of LinkSettings (`flow.x` for one of Flow), and how its text is read. Raises ValueError."""

    field: str
    read: Callable[[str], object] = str


def switch(text: str) -> bool:
    """As Java: anything but true is false; here anything but the two is an error."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"'{text}' is neither true nor false")
    return word == "true"


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a number of seconds") from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a whole number") from None


def partition_count(text: str) -> int:
    """As Connect takes it: -1 is the cluster's default."""
    count = _whole(text)
    if count != -1 and count < 1:
        raise ValueError(f"'{text}' is neither -1 nor at least 1")
    return count


def _policy(text: str) -> str:
    names = {"DefaultReplicationPolicy": "prefix", "IdentityReplicationPolicy": "identity"}
    found = names.get(text.strip().rpartition(".")[2])
    if found is None:
        raise ValueError(
            f"{text} is a Java class, which cannot run here; there are {' and '.join(names)},"
            " with replication.policy.separator"
        )
    return found


def _offset_reset(text: str) -> str:
    if text not in ("earliest", "latest"):
        raise ValueError(f"'{text}' is neither earliest nor latest: a link never stops at a lost position")
    return text


def _exactly_once(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("disabled", "preparing", "enabled"):
        raise ValueError(f"'{text}' is neither disabled nor preparing nor enabled")
    return word == "enabled"  # nothing has to be prepared here


def _only(*classes: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.strip().rpartition(".")[2] not in classes:
            raise ValueError(
                f"{text} is a Java class, which cannot run here; remove the line to take {classes[0]}"
            )
        return text

    return read


LINK: Final[Mapping[str, Meaning]] = {
    "topics": Meaning("topics"),
    "topics.exclude": Meaning("topics_exclude"),
    "topics.blacklist": Meaning("topics_exclude"),
    "groups": Meaning("groups"),
    "groups.exclude": Meaning("groups_exclude"),
    "groups.blacklist": Meaning("groups_exclude"),
    "config.properties.exclude": Meaning("config_properties_exclude"),
    "config.properties.blacklist": Meaning("config_properties_exclude"),
    "use.defaults.from": Meaning("use_defaults_from"),
    "replication.policy.class": Meaning("naming", _policy),
    "replication.policy.separator": Meaning("separator"),
    "replication.policy.internal.topic.separator.enabled": Meaning("internal_separator", switch),
    "origin.headers.enabled": Meaning("origin_headers", switch),  # ours alone: `replicator.origin`
    "origin.headers.ignored": Meaning("origin_headers_ignored", switch),  # ours alone too: failback
    "refresh.topics.enabled": Meaning("refresh_topics", switch),
    "refresh.topics.interval.seconds": Meaning("refresh_topics_interval_s", _seconds),
    "sync.topic.configs.enabled": Meaning("sync_topic_configs", switch),
    "sync.topic.configs.interval.seconds": Meaning("sync_topic_configs_interval_s", _seconds),
    "sync.topic.acls.enabled": Meaning("sync_topic_acls", switch),
    "sync.topic.acls.revoke.at.most": Meaning("acls_revoke_at_most", _whole),  # ours alone
    "sync.topic.acls.interval.seconds": Meaning("sync_topic_acls_interval_s", _seconds),
    "replication.factor": Meaning("replication_factor", _whole),
    "offset-syncs.topic.replication.factor": Meaning("offset_syncs_topic_replication_factor", _whole),
    "checkpoints.topic.replication.factor": Meaning("checkpoints_topic_replication_factor", _whole),
    "heartbeats.topic.replication.factor": Meaning("heartbeats_topic_replication_factor", _whole),
    "offset.storage.replication.factor": Meaning("internal_replication_factor", _whole),
    "offset-syncs.topic.location": Meaning("offset_syncs_topic_location"),
    "emit.offset-syncs.enabled": Meaning("emit_offset_syncs", switch),
    "emit.checkpoints.enabled": Meaning("emit_checkpoints", switch),
    "emit.checkpoints.interval.seconds": Meaning("emit_checkpoints_interval_s", _seconds),
    "sync.group.offsets.enabled": Meaning("sync_group_offsets", switch),
    "sync.group.offsets.interval.seconds": Meaning("sync_group_offsets_interval_s", _seconds),
    "exactly.once.source.support": Meaning("exactly_once", _exactly_once),
    "emit.heartbeats.enabled": Meaning("emit_heartbeats", switch),
    "emit.heartbeats.interval.seconds": Meaning("emit_heartbeats_interval_s", _seconds),
    "heartbeats.replication.enabled": Meaning("heartbeats_replication", switch),
}

OFF_BELOW_ZERO: Final[Mapping[str, str]] = {
    f"{what}_interval_s": what
    for what in (
        "refresh_topics",
        "sync_topic_configs",
        "sync_topic_acls",
        "sync_group_offsets",
        "emit_checkpoints",
        "emit_heartbeats",
    )
}
"""Intervals, and what a negative one switches off: MirrorMaker 2 plans nothing then (Kafka: Scheduler,
MirrorCheckpointConnector, MirrorHeartbeatConnector)."""

EVERYWHERE, CLUSTER, FLOW = range(3)
"""Levels of a file: `x`, `B.x` of the target cluster, `A->B.x`."""

TAKE_OVER: Final[Mapping[str, tuple[int, ...]]] = {
    "offset.storage.topic": (EVERYWHERE, CLUSTER),
    "offset.storage.partitions": (EVERYWHERE, CLUSTER),
    "status.storage.topic": (EVERYWHERE, CLUSTER),
    "offsets.storage.topic": (FLOW,),
    "group.id": (CLUSTER,),
    "name": (FLOW, EVERYWHERE),
}
"""Where MirrorMaker 2 keeps its progress: read when the link starts, written when it is handed back. With the
levels at which it takes such a setting (its worker's those for all before those of the target), the deciding
one first."""

OF_THE_WORKER: Final = ("exactly.once.source.support", "offset.storage.replication.factor")
"""Settings of a link that are MirrorMaker 2's worker's, whose place is the target cluster's level."""

CHECKED: Final[Mapping[str, Callable[[str], str]]] = {
    "topic.filter.class": _only("DefaultTopicFilter"),
    "group.filter.class": _only("DefaultGroupFilter"),
    "config.property.filter.class": _only("DefaultConfigPropertyFilter"),
    "forwarding.admin.class": _only("ForwardingAdmin"),
}
"""Settings of which only the default can be had; anything else is an error, since it would change what is
copied."""

CONSUMER: Final[Mapping[str, Meaning]] = {
    "auto.offset.reset": Meaning("start", _offset_reset),
    "fetch.max.bytes": Meaning("flow.fetch_max_bytes", _whole),
    "max.partition.fetch.bytes": Meaning("flow.fetch_partition_max_bytes", _whole),
    "fetch.max.wait.ms": Meaning("flow.fetch_max_wait_ms", _whole),
}
PRODUCER: Final[Mapping[str, Meaning]] = {
    "max.request.size": Meaning("flow.produce_request_bytes", _whole),
}

_SCHEDULE = "a link has no tasks: all processes that are started with this file share its partitions"
_METRICS = "metrics are Prometheus's: --metrics-port"
_BROKEN = (
    "what the target refuses stops its partition, on record, and is never left out without a word: remove it"
)
_REST = "there is no REST between workers: remove it"
_CONNECT = "there is no Connect worker here: remove it"
_SIZE = "a link sizes its requests by itself (flow)"
_RETRIES = "a link repeats what may be repeated until it is stopped: remove it"
_NETWORK = "connections are looked after by the link: remove it"

NO_MEANING: Final[Mapping[str, str]] = {
    name: why
    for why, names in {
        "offsets are translated exactly, from the link's ledger: there is no lag to allow": (
            "offset.lag.max",
        ),
        "groups are looked for at each sync: set sync.group.offsets.interval.seconds": (
            "refresh.groups.enabled",
            "refresh.groups.interval.seconds",
        ),
        _SCHEDULE: ("tasks.max", "tasks.max.enforce", "task.shutdown.graceful.timeout.ms"),
        _METRICS: (
            "metric.reporters",
            "metric.names.formats",
            "auto.include.jmx.reporter",
            "add.source.alias.to.metrics",
        ),
        _BROKEN: (
            "errors.tolerance",
            "errors.retry.timeout",
            "errors.retry.delay.max.ms",
            "errors.log.enable",
            "errors.log.include.messages",
        ),
        "topics are made with the source's partitions and settings: remove it": (
            "topic.creation.enable",
            "topic.creation.groups",
        ),
        "with exactly.once.source.support a link ends its transactions by itself: remove it": (
            "exactly.once.support",
            "transaction.boundary",
            "transaction.boundary.interval.ms",
        ),
        _REST: (
            "dedicated.mode.enable.internal.rest",
            "listeners",
            "admin.listeners",
            "rest.host.name",
            "rest.port",
            "rest.advertised.host.name",
            "rest.advertised.listener",
            "rest.advertised.port",
            "rest.extension.classes",
            "listeners.https",
            "access.control.allow.methods",
            "access.control.allow.origin",
            "response.http.headers.config",
        ),
        _CONNECT: (
            "offset.flush.interval.ms",
            "offset.flush.timeout.ms",
            "config.storage.topic",
            "config.storage.replication.factor",
            "status.storage.partitions",
            "status.storage.replication.factor",
            "key.converter",
            "value.converter",
            "header.converter",
            "internal.key.converter",
            "internal.value.converter",
            "connector.class",
            "connector.plugin.version",
            "key.converter.plugin.version",
            "value.converter.plugin.version",
            "header.converter.plugin.version",
            "connector.client.config.override.policy",
            "config.action.reload",
            "topic.tracking.enable",
            "topic.tracking.allow.reset",
            "plugin.path",
            "plugin.discovery",
            "worker.sync.timeout.ms",
            "worker.unsync.backoff.ms",
            "rebalance.timeout.ms",
            "scheduled.rebalance.max.delay.ms",
            "connect.protocol",
            "source.cluster.alias",
            "target.cluster.alias",
        ),
        "topics' settings are changed one by one (IncrementalAlterConfigs) in any case": (
            "use.incremental.alter.configs",
        ),
        "requests are repeated until they are answered: remove it": ("admin.timeout.ms",),
        "reading waits for data by itself: remove it": ("consumer.poll.timeout.ms",),
    }.items()
    for name in names
}

WORKER_PREFIXES: Final = (
    "offset.storage",
    "config.storage",
    "status.storage",
    "task",
    "worker",
    "listeners.",
    "inter.worker.",
    "topic.creation.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "internal.key.converter.",
    "internal.value.converter.",
)

CHANGES_RECORDS: Final = ("transforms", "predicates")
"""Lists of Java classes that change or drop records on the way; what belongs to one is `NAME.….…`."""

CLIENT_NO_MEANING: Final[Mapping[str, str]] = {
    name: why
    for why, names in {
        "batches go on as the source has compressed them": (
            "compression.type",
            "compression.gzip.level",
            "compression.lz4.level",
            "compression.zstd.level",
        ),
        "a link always writes idempotently and waits for all in-sync replicas": (
            "acks",
            "enable.idempotence",
            "max.in.flight.requests.per.connection",
        ),
        "aborted transactions are never copied: a link always reads what is committed": ("isolation.level",),
        _SIZE: (
            "batch.size",
            "linger.ms",
            "buffer.memory",
            "fetch.min.bytes",
            "max.poll.records",
            "send.buffer.bytes",
            "receive.buffer.bytes",
            "check.crcs",
        ),
        _RETRIES: (
            "retries",
            "retry.backoff.ms",
            "retry.backoff.max.ms",
            "delivery.timeout.ms",
            "request.timeout.ms",
            "default.api.timeout.ms",
            "max.block.ms",
            "max.poll.interval.ms",
        ),
        _NETWORK: (
            "client.id",
            "bootstrap.controllers",
            "client.rack",
            "client.dns.lookup",
            "connections.max.idle.ms",
            "metadata.max.age.ms",
            "metadata.max.idle.ms",
            "metadata.recovery.strategy",
            "metadata.recovery.rebootstrap.trigger.ms",
            "reconnect.backoff.ms",
            "reconnect.backoff.max.ms",
            "socket.connection.setup.timeout.ms",
            "socket.connection.setup.timeout.max.ms",
        ),
        _METRICS: (
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
            "auto.include.jmx.reporter",
            "enable.metrics.push",
        ),
        "progress is kept by the link, at the target: remove it": (
            "group.id",
            "group.instance.id",
            "group.protocol",
            "enable.auto.commit",
            "auto.commit.interval.ms",
            "heartbeat.interval.ms",
            "session.timeout.ms",
            "partition.assignment.strategy",
            "allow.auto.create.topics",
            "exclude.internal.topics",
            "group.remote.assignor",
            "share.acknowledgement.mode",
            "share.acquire.mode",
            "transactional.id",
            "transaction.timeout.ms",
            "transaction.two.phase.commit.enable",
        ),
        "Java classes cannot run here: remove it": (
            "interceptor.classes",
            "key.serializer",
            "value.serializer",
            "key.deserializer",
            "value.deserializer",
            "partitioner.class",
            "partitioner.ignore.keys",
            "partitioner.adaptive.partitioning.enable",
            "partitioner.availability.timeout.ms",
            "security.providers",
        ),
    }.items()
    for name in names
}

LATE_NAMES: Final[Mapping[str, str]] = {
    "topics.blacklist": "topics.exclude",
    "groups.blacklist": "groups.exclude",
    "config.properties.blacklist": "config.properties.exclude",
}
"""Names that Kafka 4.0 dropped (KAFKA-17529); MirrorMaker 2 4.x passes them over without a word."""


def is_security(name: str) -> bool:
    """Whether a client setting says how to be let in."""
    return name == "security.protocol" or name.startswith(("ssl.", "sasl."))
