"""Topic settings: Kafka's names, defaults and limits, and the broker settings that give them other defaults.

A topic's value is its own override, else the broker's synonym (`log.segment.bytes`), else Kafka's default.
Source: Kafka's TopicConfig and ServerTopicConfigSynonyms. Must not know where overrides are kept.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from broker.config.definition import ConfigError, Definition, Synonym, definitions, setting, unknown
from broker.config.kinds import Kind, at_least, between, each_of, one_of

MIRROR_SOURCE = "isthmus.mirror.source"
"""Beyond Kafka's: set where a topic is a read-only copy, at the same offsets, of one of another cluster."""

_MAX_LONG = 2**63 - 1
_HOUR_MS = 3_600_000
_WEEK_HOURS = 168


def _same(name: str, kind: Kind) -> tuple[Synonym, ...]:
    return (Synonym(name, kind),)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The effective settings of one topic. Sizes in bytes, times in ms."""

    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy",
        Kind.LIST,
        ("delete",),
        "Fate of old records: `delete` by age or size, `compact` to the last one of each key, both, or none.",
        each_of("compact", "delete"),
        _same("log.cleanup.policy", Kind.LIST),
    )
    compression_type: str = setting(
        "compression.type",
        Kind.STRING,
        "producer",
        "Codec in which batches are stored; `producer` keeps what the producer chose.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        _same("compression.type", Kind.STRING),
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        Kind.INT,
        -1,
        "Effort of gzip where the broker compresses; -1 is the library's choice.",
        between(-1, 9),
        _same("compression.gzip.level", Kind.INT),
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        Kind.INT,
        9,
        "Effort of lz4 where the broker compresses.",
        between(1, 17),
        _same("compression.lz4.level", Kind.INT),
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        Kind.INT,
        3,
        "Effort of zstd where the broker compresses.",
        between(-131072, 22),
        _same("compression.zstd.level", Kind.INT),
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        Kind.LONG,
        86_400_000,
        "How long a compacted topic keeps a deletion marker, so that slow readers still see it.",
        at_least(0),
        _same("log.cleaner.delete.retention.ms", Kind.LONG),
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        Kind.LONG,
        60_000,
        "How long the file of a deleted segment stays on disk.",
        at_least(0),
        _same("log.segment.delete.delay.ms", Kind.LONG),
    )
    flush_messages: int = setting(
        "flush.messages",
        Kind.LONG,
        _MAX_LONG,
        "Force the log to disk after this many records; by default the operating system decides.",
        at_least(1),
        _same("log.flush.interval.messages", Kind.LONG),
    )
    flush_ms: int = setting(
        "flush.ms",
        Kind.LONG,
        _MAX_LONG,
        "Force the log to disk after this time; by default the operating system decides.",
        at_least(0),
        (Synonym("log.flush.interval.ms", Kind.LONG), Synonym("log.flush.scheduler.interval.ms", Kind.LONG)),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "follower.replication.throttled.replicas",
        Kind.LIST,
        (),
        "Replicas (`partition:broker`) whose fetching is throttled, or `*` for all.",
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        Kind.INT,
        4096,
        "Distance in the log between two entries of the offset index.",
        at_least(0),
        _same("log.index.interval.bytes", Kind.INT),
    )
    isthmus_mirror_source: str = setting(
        MIRROR_SOURCE,
        Kind.STRING,
        "",
        "Link, cluster and topic that this topic mirrors at the same offsets: clients only read it."
        " `isthmus replicate` sets it, `isthmus mirrors` changes it.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "leader.replication.throttled.replicas",
        Kind.LIST,
        (),
        "Replicas (`partition:broker`) whose serving of followers is throttled, or `*` for all.",
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        Kind.LONG,
        _MAX_LONG,
        "Longest time that a record of a compacted topic may stay uncompacted.",
        at_least(1),
        _same("log.cleaner.max.compaction.lag.ms", Kind.LONG),
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        Kind.INT,
        1_048_588,
        "Largest record batch (after compression) that is accepted.",
        at_least(0),
        _same("message.max.bytes", Kind.INT),
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        3_600_000,
        "How far a record's own timestamp may be ahead of the broker's clock.",
        at_least(0),
        _same("log.message.timestamp.after.max.ms", Kind.LONG),
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        _MAX_LONG,
        "How far a record's own timestamp may be behind the broker's clock.",
        at_least(0),
        _same("log.message.timestamp.before.max.ms", Kind.LONG),
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        "Whose clock a record's timestamp is: the producer's (CreateTime) or the broker's (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
        _same("log.message.timestamp.type", Kind.STRING),
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        0.5,
        "Share of a compacted log that must be uncompacted before the cleaner takes it up.",
        between(0, 1),
        _same("log.cleaner.min.cleanable.ratio", Kind.DOUBLE),
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        Kind.LONG,
        0,
        "Time for which a record of a compacted topic stays uncompacted.",
        at_least(0),
        _same("log.cleaner.min.compaction.lag.ms", Kind.LONG),
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        Kind.INT,
        1,
        "With acks=all, a write needs at least this many replicas in sync.",
        at_least(1),
        _same("min.insync.replicas", Kind.INT),
    )
    preallocate: bool = setting(
        "preallocate",
        Kind.BOOLEAN,
        False,
        "Whether a new segment file gets its whole size on disk at once.",
        None,
        _same("log.preallocate", Kind.BOOLEAN),
    )
    retention_bytes: int = setting(
        "retention.bytes",
        Kind.LONG,
        -1,
        "Size of a partition above which old segments are deleted; -1 for no limit.",
        None,
        _same("log.retention.bytes", Kind.LONG),
    )
    retention_ms: int = setting(
        "retention.ms",
        Kind.LONG,
        _WEEK_HOURS * _HOUR_MS,
        "Age above which old segments are deleted; -1 for no limit.",
        at_least(-1),
        (
            Synonym("log.retention.ms", Kind.LONG),
            Synonym("log.retention.minutes", Kind.INT, 60_000),
            Synonym("log.retention.hours", Kind.INT, _HOUR_MS, _WEEK_HOURS),
        ),
    )
    segment_bytes: int = setting(
        "segment.bytes",
        Kind.INT,
        1_073_741_824,
        "Size of a segment file; retention and compaction work on whole segments.",
        at_least(14),
        _same("log.segment.bytes", Kind.INT),
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        Kind.INT,
        10_485_760,
        "Largest size of a segment's index files.",
        at_least(4),
        _same("log.index.size.max.bytes", Kind.INT),
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        Kind.LONG,
        0,
        "Random time taken off segment.ms, so that partitions do not start new segments together.",
        at_least(0),
        (Synonym("log.roll.jitter.ms", Kind.LONG), Synonym("log.roll.jitter.hours", Kind.INT, _HOUR_MS, 0)),
    )
    segment_ms: int = setting(
        "segment.ms",
        Kind.LONG,
        _WEEK_HOURS * _HOUR_MS,
        "Age after which a new segment is started though the old one is not full.",
        at_least(1),
        (Synonym("log.roll.ms", Kind.LONG), Synonym("log.roll.hours", Kind.INT, _HOUR_MS, _WEEK_HOURS)),
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        False,
        "Whether a replica outside the ISR may lead when no other is left, at the price of lost records.",
        None,
        _same("unclean.leader.election.enable", Kind.BOOLEAN),
    )

    def with_overrides(self, overrides: Mapping[str, str]) -> "TopicConfig":
        """This configuration with a topic's own settings on top. Raises ConfigError naming each wrong one."""
        return dataclasses.replace(self, **parse_topic_settings(overrides))  # type: ignore[arg-type]


TOPIC_DEFINITIONS: Mapping[str, Definition] = definitions(TopicConfig)


def parse_topic_settings(overrides: Mapping[str, str]) -> dict[str, object]:
    """Values by attribute name. Raises ConfigError naming every unknown or wrong setting."""
    values: dict[str, object] = {}
    errors = []
    for name, text in overrides.items():
        definition = TOPIC_DEFINITIONS.get(name)
        if definition is None:
            errors.append(unknown(name, TOPIC_DEFINITIONS))
            continue
        try:
            values[definition.attribute] = definition.parse(text)
        except ValueError as error:
            errors.append(str(error))
    if errors:
        raise ConfigError(errors)
    return values


def broker_synonyms() -> Mapping[str, tuple[Definition, Synonym]]:
    """Broker settings that give topic settings their defaults: name -> (topic setting, how)."""
    return {
        synonym.name: (definition, synonym)
        for definition in TOPIC_DEFINITIONS.values()
        for synonym in definition.synonyms
    }


def topic_defaults(properties: Mapping[str, str]) -> TopicConfig:
    """Topic defaults that broker properties give; of several synonyms the first (finest unit) counts."""
    values: dict[str, object] = {}
    errors = []
    for definition in TOPIC_DEFINITIONS.values():
        for synonym in reversed(definition.synonyms):
            if synonym.name not in properties:
                continue
            try:
                values[definition.attribute] = synonym_value(definition, synonym, properties[synonym.name])
            except ValueError as error:
                errors.append(str(error))
    if errors:
        raise ConfigError(errors)
    return TopicConfig(**values)  # type: ignore[arg-type]


def synonym_value(definition: Definition, synonym: Synonym, text: str) -> object:
    """Topic value of a broker setting's text. Raises ValueError naming the broker setting."""
    own = Definition(synonym.name, synonym.kind, None, definition.doc)
    value = own.parse(text)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        value *= synonym.factor
    complaint = definition.check(value) if definition.check is not None else None
    if complaint is not None:
        raise ValueError(f"{synonym.name}: {complaint}")
    return value
