"""Settings of one topic that its partition logs obey, under Kafka's names and with Kafka 4 defaults.

Field `segment_bytes` is the topic setting `segment.bytes`, and so on. Values were validated by whoever
built the object; nothing here parses or complains. Units are in the names as Kafka has them: ms or bytes.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

NO_LIMIT_MS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    cleanup_policy: str = "delete"
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = NO_LIMIT_MS
    flush_ms: int = NO_LIMIT_MS
    index_interval_bytes: int = 4096
    isthmus_mirror_source: str = ""
    max_compaction_lag_ms: int = NO_LIMIT_MS
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = NO_LIMIT_MS
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "LogConfig":
        """Pick the log's settings, by Kafka's dotted names, out of parsed topic settings; others are
        ignored.
        """
        known = {field.name.replace("_", "."): field.name for field in fields(cls)}
        return cls(**{known[name]: value for name, value in settings.items() if name in known})

    @property
    def is_mirror(self) -> bool:
        """Whether the log is a copy of one in another cluster: its source decides what is in it."""
        return bool(self.isthmus_mirror_source)

    @property
    def is_fenced(self) -> bool:
        """Whether it will be one: another cluster takes over. No new records, but transactions may end."""
        return self.isthmus_mirror_source.startswith("fenced")

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def longest_segment_ms(self) -> int:
        """Age at which a segment is closed: only closed ones are compacted, in time for its lag (KIP-354)."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    def random_jitter_ms(self) -> int:
        """Some time below `segment.jitter.ms` and `segment.ms`: a segment holds more than one batch."""
        bound = min(self.segment_jitter_ms, self.segment_ms)
        return random.randrange(bound) if bound > 0 else 0

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"
