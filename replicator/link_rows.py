"""Rows of the progress topic about a link as a whole: where it began, and what it has set at the target.

Owns their keys and values. It must not know where rows are kept.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from protocol.types import TopicPartition
from replicator.open_transactions import Row
from transfer.ledger import NOT_TOLD, LedgerError, same_topic

_log = logging.getLogger("isthmus.replicator")

LINK_KEY: Final = b"link"
SETTINGS: Final = "settings/"
MIRRORMAKER_KEY: Final = b"mirrormaker"
NOT_KNOWN_YET: Final = -2

Asked = list[list[list[str]]]
"""Patterns that starts of a link were asked for: each time those to take and those to leave out."""


class First(NamedTuple):
    """Where a partition begins that was there when the link took its topic in."""

    offset: int
    """-1: at its log's start, wherever that was then. NOT_KNOWN_YET: at its end of then, which nobody could
    tell."""
    topic_id: str = NOT_TOLD
    """Of the topic that was there then: its offset says nothing of one that was made since."""
    epoch: int = -1
    """Of its leader then, or of the term without one, where the end is not known yet: it ended there."""

    def waits(self, topic_id: str) -> bool:
        """Whether a partition of the topic with this id cannot begin before its end of then is known."""
        return self.offset == NOT_KNOWN_YET and same_topic(self.topic_id, topic_id)


class Seen(NamedTuple):
    """What the link knows of MirrorMaker 2's progress: who moves it afterwards is MirrorMaker 2."""

    positions: Mapping[TopicPartition, int]
    """Next source offsets, as last read or written."""
    handed_back_ms: int = 0
    """When the link was handed back, or found that MirrorMaker 2 had been started again; 0: it has gone on
    since, or never was."""


def initial_row_of(initial: Mapping[TopicPartition, First], asked: Asked) -> Row:
    """Where partitions begin that the link was not there to see being born."""
    rows = [
        [*tp, first.offset, *([first.epoch] if first.offset == NOT_KNOWN_YET else ())]
        for tp, first in sorted(initial.items())
    ]  # the longer ones are refused by versions that would copy from the log's start
    ids = {tp.topic: first.topic_id for tp, first in sorted(initial.items()) if first.topic_id != NOT_TOLD}
    data = {"initial": rows, "ids": ids, **({"asked": asked} if asked else {})}
    return LINK_KEY, json.dumps(data, separators=(",", ":")).encode()


def read_asked(value: bytes | None) -> Asked:
    """Of a row that can be read as `read_initial` does; links that are asked once have none."""
    return json.loads(value).get("asked", []) if value is not None else []


def read_initial(value: bytes | None) -> dict[TopicPartition, First] | None:
    """None: the link never started. Raises LedgerError when it cannot be read."""
    if value is None:
        return None
    try:
        data = json.loads(value)
        ids = data.get("ids", {})
        return {
            TopicPartition(topic, index): First(offset, ids.get(topic, NOT_TOLD), *epoch)
            for topic, index, offset, *epoch in data["initial"]
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"the link's own progress record cannot be read: {error!r}") from error


def seen_row_of(seen: Seen) -> Row:
    """What was seen of MirrorMaker 2's progress."""
    rows = [[tp.topic, tp.partition, position] for tp, position in sorted(seen.positions.items())]
    data = {"positions": rows, "handed_back_ms": seen.handed_back_ms}
    return MIRRORMAKER_KEY, json.dumps(data, separators=(",", ":")).encode()


def read_seen(value: bytes | None) -> Seen | None:
    """None: nothing is on record. Raises LedgerError when it cannot be read."""
    if value is None:
        return None
    try:
        data = json.loads(value)
        rows = {TopicPartition(str(topic), int(n)): int(position) for topic, n, position in data["positions"]}
        return Seen(rows, int(data["handed_back_ms"]))
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"what the link knows of MirrorMaker 2 cannot be read: {error!r}") from error


def settings_row_of(topic: str, values: Mapping[str, str]) -> Row:
    """What the link has set at the target for a source topic."""
    return f"{SETTINGS}{topic}".encode(), json.dumps(dict(values), separators=(",", ":")).encode()


def read_settings(value: bytes | None) -> dict[str, str]:
    """What cannot be read is not known: nothing of it is ever taken back at the target."""
    try:
        return {str(name): str(text) for name, text in json.loads(value or b"{}").items()}
    except (AttributeError, ValueError) as error:
        _log.error("settings that the link has set cannot be read: %r", error)
        return {}
