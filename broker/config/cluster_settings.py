"""Settings of what brokers do together: topics, replication and control, groups and transactions.

Kafka's names (server.properties), defaults and limits; only settings that something reads. Times in ms unless
the name says otherwise, sizes in bytes. Source: the configuration reference of Kafka 3.9 and 4.x.
Must not know where values come from.
"""

from dataclasses import dataclass

from broker.config.definition import setting
from broker.config.kinds import Kind, at_least, between, one_of

_MAX_INT = 2**31 - 1
_MAX_LONG = 2**63 - 1
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, kw_only=True)
class TopicCreationSettings:
    """Creating and deleting topics."""

    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        Kind.BOOLEAN,
        True,
        "Whether asking for an unknown topic creates it, when the client allows that.",
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable", Kind.BOOLEAN, True, "Whether topics can be deleted."
    )
    num_partitions: int = setting(
        "num.partitions",
        Kind.INT,
        1,
        "Partitions of a topic for which no number was asked.",
        at_least(1),
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        Kind.INT,
        1,
        "Replicas of a topic for which no number was asked.",
        between(1, 32767),
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        Kind.INT,
        2000,
        "Most partitions that one DescribeTopicPartitions answer lists.",
        at_least(1),
    )


@dataclass(frozen=True, kw_only=True)
class ReplicationSettings:
    """Replicas, leadership and the controller."""

    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms", Kind.LONG, 30_000, "A follower behind for this long leaves the ISR."
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes",
        Kind.INT,
        1_048_576,
        "Bytes a follower asks for per partition.",
        at_least(0),
    )
    replica_fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes", Kind.INT, 1, "Bytes for which the answer to a follower waits."
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes",
        Kind.INT,
        10_485_760,
        "Bytes a follower asks for at once.",
        at_least(0),
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms", Kind.INT, 500, "Longest wait of a follower's fetch."
    )
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms", Kind.INT, 1000, "Pause of a follower after an error.", at_least(0)
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        Kind.LONG,
        5000,
        "How often high watermarks are written down.",
    )
    replica_socket_timeout_ms: int = setting(
        "replica.socket.timeout.ms", Kind.INT, 30_000, "Longest wait of a follower for its leader's answer."
    )
    replica_selector_class: str | None = setting(
        "replica.selector.class",
        Kind.STRING,
        None,
        "How the replica that a consumer reads from is chosen: Kafka's RackAwareReplicaSelector, or leaders.",
        one_of(RACK_AWARE_SELECTOR, "org.apache.kafka.common.replica.LeaderSelector"),
    )
    leader_replication_throttled_rate: int = setting(
        "leader.replication.throttled.rate",
        Kind.LONG,
        _MAX_LONG,
        "Bytes a second that are served to throttled replicas which are not in sync.",
        at_least(0),
    )
    follower_replication_throttled_rate: int = setting(
        "follower.replication.throttled.rate",
        Kind.LONG,
        _MAX_LONG,
        "Bytes a second that throttled replicas of this broker copy until they are in sync.",
        at_least(0),
    )
    controller_socket_timeout_ms: int = setting(
        "controller.socket.timeout.ms", Kind.INT, 30_000, "Longest wait of the controller for a broker."
    )
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable",
        Kind.BOOLEAN,
        True,
        "Whether a stopping broker hands over its leaderships.",
    )
    controlled_shutdown_max_retries: int = setting(
        "controlled.shutdown.max.retries", Kind.INT, 3, "How often handing over is tried."
    )
    controlled_shutdown_retry_backoff_ms: int = setting(
        "controlled.shutdown.retry.backoff.ms", Kind.LONG, 5000, "Pause between two tries of handing over."
    )
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable", Kind.BOOLEAN, True, "Whether leadership returns to preferred leaders."
    )
    unclean_last_replica_election_enable: bool = setting(
        "unclean.last.replica.election.enable",
        Kind.BOOLEAN,
        False,
        "Whether the last in-sync replica leads again by itself after an unclean end, as in Kafka; a "
        "person's word is needed otherwise. Not a setting of Kafka's.",
    )
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds",
        Kind.LONG,
        300,
        "How often leaderships are looked through for some to give back.",
        at_least(1),
    )
    leader_imbalance_per_broker_percentage: int = setting(
        "leader.imbalance.per.broker.percentage",
        Kind.INT,
        10,
        "Share of leaderships not with their preferred leader above which they are given back.",
    )


@dataclass(frozen=True, kw_only=True)
class CoordinatorSettings:
    """Groups, their offsets, and transactions."""

    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        Kind.INT,
        3000,
        "How long an empty group waits for more members before its first rebalance.",
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms", Kind.INT, 6000, "Shortest session timeout a member may ask for."
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms", Kind.INT, 1_800_000, "Longest session timeout a member may ask for."
    )
    group_max_size: int = setting(
        "group.max.size", Kind.INT, _MAX_INT, "Most members of one group.", at_least(1)
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes", Kind.INT, 4096, "Longest metadata text of a committed offset."
    )
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        Kind.INT,
        5000,
        "How long a commit waits for the replicas of the offsets topic.",
        at_least(1),
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        Kind.INT,
        10_080,
        "Offsets of a group without members are forgotten after this time.",
        at_least(1),
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        Kind.LONG,
        600_000,
        "How often offsets are looked through for some to forget.",
        at_least(1),
    )
    offsets_topic_compression_codec: int = setting(
        "offsets.topic.compression.codec", Kind.INT, 0, "Codec number of the offsets topic.", between(0, 4)
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", Kind.INT, 50, "Partitions of the offsets topic.", at_least(1)
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        Kind.SHORT,
        3,
        "Replicas of the offsets topic; it is not created with fewer brokers.",
        at_least(1),
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        Kind.INT,
        104_857_600,
        "Segment size of the offsets topic.",
        at_least(1),
    )
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        Kind.INT,
        900_000,
        "Longest transaction timeout a producer may ask for.",
        at_least(1),
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        Kind.INT,
        604_800_000,
        "A transactional id that has been quiet for this long is forgotten.",
        at_least(1),
    )
    transaction_partition_verification_enable: bool = setting(
        "transaction.partition.verification.enable",
        Kind.BOOLEAN,
        True,
        "Whether the first batch of a transaction in a partition is checked with its coordinator (KIP-890).",
    )
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions",
        Kind.INT,
        50,
        "Partitions of the transactions topic.",
        at_least(1),
    )
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        Kind.SHORT,
        3,
        "Replicas of the transactions topic; it is not created with fewer brokers.",
        at_least(1),
    )
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr",
        Kind.INT,
        2,
        "Replicas of the transactions topic that must be in sync to write.",
        at_least(1),
    )
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        Kind.INT,
        104_857_600,
        "Segment size of the transactions topic.",
        at_least(1),
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind.INT,
        10_000,
        "How often transactions are looked through for some to abort.",
        at_least(1),
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind.INT,
        3_600_000,
        "How often transactional ids are looked through for some to forget.",
        at_least(1),
    )
