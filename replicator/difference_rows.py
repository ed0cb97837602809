"""What mirrors lack, or had to give up: the rows `difference/…` of the progress topic.

Owns the rows only, pure. A mirror has no ledger, so each stretch has a row of its own, whose key names the
source's topic by its id too: a topic that is created again has other offsets. They are kept for ever, as
acknowledgements are.
"""

from __future__ import annotations

import json
import logging
from typing import Final

from protocol.types import TopicPartition
from replicator.acknowledgements import Difference, Kind

_log = logging.getLogger("isthmus.replicator")

PREFIX: Final = "difference/"


def key_of(difference: Difference, topic_id: str) -> bytes:
    """`topic_id` as text, of the source's topic."""
    tp, kind, start, end, _, _ = difference
    return f"{PREFIX}{tp.topic}/{tp.partition}/{topic_id}/{kind}/{start}/{end}".encode()


def topic_id_of(key: bytes) -> str:
    """Of the source's topic that a row is about."""
    return key.decode().removeprefix(PREFIX).split("/")[2]


def row_of(difference: Difference, topic_id: str) -> tuple[bytes, bytes]:
    """The row of the progress topic."""
    value = {"reason": difference.reason, "at_ms": difference.at_ms}
    return key_of(difference, topic_id), json.dumps(value, separators=(",", ":")).encode()


def read_row(key: bytes, value: bytes) -> Difference:
    """What `row_of` wrote. Where only its value cannot be read, it is a difference all the same.

    Raises ValueError for a key that is not like that.
    """
    topic, partition, _, kind, start, end = key.decode().removeprefix(PREFIX).split("/")
    try:
        data = json.loads(value)
        reason, at_ms = str(data["reason"]), int(data["at_ms"])
    except (KeyError, TypeError, ValueError) as error:
        _log.error("what is said of %s cannot be read: %r", key.decode(), error)
        reason, at_ms = "not known", 0
    return Difference(TopicPartition(topic, int(partition)), Kind(kind), int(start), int(end), reason, at_ms)
