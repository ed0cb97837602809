"""What a client is told when a log cannot be read, and the one line about it for the operator.

A damaged batch stays where it is and is asked for again and again: each is reported once.
"""

from __future__ import annotations

import logging

from broker.log import CorruptLog, LogError
from protocol.errors import ErrorCode

logger = logging.getLogger("isthmus.broker")

_REMEMBERED = 1000


class Damage:
    """Failed reads of one broker."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def code(self, partition: str, error: LogError) -> ErrorCode:
        """Kafka's code for a read that failed; reports it if it is new."""
        text = f"{partition} cannot be read, other partitions are not affected: {error}"
        if text not in self._reported:
            if len(self._reported) >= _REMEMBERED:
                self._reported.clear()
            self._reported.add(text)
            logger.error("%s", text)
        if isinstance(error, CorruptLog):
            return ErrorCode.CORRUPT_MESSAGE
        return ErrorCode.KAFKA_STORAGE_ERROR
