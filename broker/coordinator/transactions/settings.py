"""The settings that the transaction coordinator obeys, taken from the broker's; names are Kafka's."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config import BrokerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Times in milliseconds."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    abort_interval_ms: int = 10_000
    expire_interval_ms: int = 3_600_000
    topic_partitions: int = 50
    listener: str = "PLAINTEXT"
    #: How long a write to the transaction log may take until it is replicated.
    write_timeout_ms: int = 5_000

    @classmethod
    def from_config(cls, config: BrokerConfig) -> TransactionSettings:
        """Pick what concerns transactions out of a broker's settings."""
        return cls(
            max_timeout_ms=config.transaction_max_timeout_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
            abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            expire_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
            topic_partitions=config.transaction_state_log_num_partitions,
            listener=config.inter_broker_listener,
        )
