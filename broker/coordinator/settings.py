"""The settings that the coordinator obeys, taken from the broker's; names are Kafka's."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.config import BrokerConfig
from broker.coordinator.groups.limits import GroupLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Times in milliseconds, sizes in characters (`offset.metadata.max.bytes` counts those) or numbers."""

    limits: GroupLimits = field(default_factory=GroupLimits)
    metadata_max: int = 4096
    commit_timeout_ms: int = 5_000
    retention_ms: int = 7 * 24 * 3_600_000
    retention_check_interval_ms: int = 600_000
    compression_codec: int = 0
    topic_partitions: int = 50

    @classmethod
    def from_config(cls, config: BrokerConfig) -> GroupSettings:
        """Pick what concerns groups out of a broker's settings."""
        return cls(
            limits=GroupLimits(
                min_session_timeout_ms=config.group_min_session_timeout_ms,
                max_session_timeout_ms=config.group_max_session_timeout_ms,
                max_size=config.group_max_size,
                initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            ),
            metadata_max=config.offset_metadata_max_bytes,
            commit_timeout_ms=config.offsets_commit_timeout_ms,
            retention_ms=config.offsets_retention_minutes * 60_000,
            retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            compression_codec=config.offsets_topic_compression_codec,
            topic_partitions=config.offsets_topic_num_partitions,
        )
