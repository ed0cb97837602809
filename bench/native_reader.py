"""A librdkafka consumer whose messages are never seen by Python: the library calls a C function for each.

Reading 1 KB records, a Python consumer ends at some 500 MB/s, its queue is full, and librdkafka pauses for a
second each time (`fetch.queue.backoff.ms`): such a run measures the client. Here the library that
confluent-kafka brings counts and frees messages by itself (`rd_kafka_consume_callback_queue`), with its
defaults. `available` is false where that library cannot be found.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from pathlib import Path

import confluent_kafka

_TEXT = 512
_POLL_MS = 200
_CONSUMER = 1  # rd_kafka_type_t


def _path() -> str | None:
    """The very library that `confluent_kafka` has loaded into this process."""
    assert confluent_kafka.libversion()
    maps = Path("/proc/self/maps")
    found = re.search(r"\S*/librdkafka[^/\s]*\.so[^\s]*", maps.read_text()) if maps.exists() else None
    return None if found is None else found[0]


def available() -> bool:
    return _path() is not None


class NativeReader:
    """Reads partitions of a topic from their beginnings. Raises RuntimeError where librdkafka refuses."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        path = _path()
        if path is None:
            raise RuntimeError("librdkafka is not in this process")
        self._library = library = _typed(ctypes.CDLL(path))
        # Any C function does that may be called with two pointers and does nothing; this one is libc's.
        self._nothing = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)
        error = ctypes.create_string_buffer(_TEXT)
        conf = library.rd_kafka_conf_new()
        for name, value in settings.items():
            if library.rd_kafka_conf_set(conf, name.encode(), value.encode(), error, _TEXT):
                raise RuntimeError(error.value.decode())
        self._handle = library.rd_kafka_new(_CONSUMER, conf, error, _TEXT)
        if not self._handle:
            raise RuntimeError(error.value.decode())
        library.rd_kafka_poll_set_consumer(self._handle)
        self._queue = library.rd_kafka_queue_get_consumer(self._handle)

    def assign(self, topic: str, partitions: int) -> None:
        library = self._library
        wanted = library.rd_kafka_topic_partition_list_new(partitions)
        for index in range(partitions):
            library.rd_kafka_topic_partition_list_add(wanted, topic.encode(), index)
            library.rd_kafka_topic_partition_list_set_offset(wanted, topic.encode(), index, 0)
        if library.rd_kafka_assign(self._handle, wanted):
            raise RuntimeError(f"{topic} could not be assigned")
        library.rd_kafka_topic_partition_list_destroy(wanted)

    def read(self) -> int:
        """Messages that came within a fifth of a second."""
        return int(self._library.rd_kafka_consume_callback_queue(self._queue, _POLL_MS, self._nothing, None))

    def close(self) -> None:
        self._library.rd_kafka_queue_destroy(self._queue)
        self._library.rd_kafka_consumer_close(self._handle)
        self._library.rd_kafka_destroy(self._handle)


def _typed(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, []),
        ("rd_kafka_conf_set", number, [pointer, text, text, text, ctypes.c_size_t]),
        ("rd_kafka_new", pointer, [number, pointer, text, ctypes.c_size_t]),
        ("rd_kafka_poll_set_consumer", number, [pointer]),
        ("rd_kafka_queue_get_consumer", pointer, [pointer]),
        ("rd_kafka_topic_partition_list_new", pointer, [number]),
        ("rd_kafka_topic_partition_list_add", pointer, [pointer, text, number]),
        ("rd_kafka_topic_partition_list_set_offset", number, [pointer, text, number, ctypes.c_int64]),
        ("rd_kafka_topic_partition_list_destroy", None, [pointer]),
        ("rd_kafka_assign", number, [pointer, pointer]),
        ("rd_kafka_consume_callback_queue", number, [pointer, number, pointer, pointer]),
        ("rd_kafka_queue_destroy", None, [pointer]),
        ("rd_kafka_consumer_close", number, [pointer]),
        ("rd_kafka_destroy", None, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
