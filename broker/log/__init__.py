"""Partition logs in Kafka's on-disk formats: append, read, recover, retain. Start with README.md."""

from broker.log.config import LogConfig
from broker.log.errors import (
    AppendRefused,
    CorruptLog,
    LogDirError,
    LogError,
    NotCached,
    OffsetOutOfRange,
    StorageFailed,
)
from broker.log.full_append import AppendResult
from broker.log.incoming import Origin
from broker.log.log_manager import LogManager
from broker.log.log_view import LogSlice
from broker.log.partition_log import Log
from broker.log.time_lookup import FoundOffset
from broker.log.txn_index import AbortedTxn

__all__ = [
    "AbortedTxn",
    "AppendRefused",
    "AppendResult",
    "CorruptLog",
    "FoundOffset",
    "Log",
    "LogConfig",
    "LogDirError",
    "LogError",
    "LogManager",
    "LogSlice",
    "NotCached",
    "OffsetOutOfRange",
    "Origin",
    "StorageFailed",
]
