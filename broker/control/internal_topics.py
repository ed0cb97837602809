"""The topics that brokers make for themselves, with the settings that their formats need. Pure."""

from broker.config import BrokerConfig
from broker.control.topic_plan import Wanted

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"

# Both are maps kept as logs: only the last record of a key counts.
_COMPACTED = {"cleanup.policy": "compact", "compression.type": "producer"}


def internal_topic(name: str, config: BrokerConfig) -> Wanted:
    """What to create for an internal topic."""
    if name == OFFSETS_TOPIC:
        return Wanted(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            _COMPACTED | {"segment.bytes": str(config.offsets_topic_segment_bytes)},
        )
    if name == TRANSACTIONS_TOPIC:
        return Wanted(
            name,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            _COMPACTED
            | {
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "unclean.leader.election.enable": "false",
            },
        )
    raise ValueError(f"{name} is not an internal topic")
