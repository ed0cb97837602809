"""What a link has set of each group: the rows `group/<group>` of the progress topic.

Owns the rows only, pure. They are written, before the positions are, where a policy lets a group of the
target go back or be deleted (`groups_on_rewind`, `groups_on_delete`): what somebody else has set is never
touched.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import NamedTuple

from protocol.types import TopicPartition

_log = logging.getLogger("isthmus.replicator")

PREFIX = "group/"


class Noted(NamedTuple):
    """The link has set `target` for `source`, the offset that the group had committed for `tp` there."""

    tp: TopicPartition
    source: int
    target: int


GroupNotes = Mapping[TopicPartition, Noted]
"""Of one group, by partition of the target."""


def row_of(group: str, notes: GroupNotes | None) -> tuple[bytes, bytes | None]:
    """The row of the progress topic; None: nothing of the group is the link's any more."""
    value = None
    if notes:
        rows = [[*there, *one.tp, one.source, one.target] for there, one in sorted(notes.items())]
        value = json.dumps(rows, separators=(",", ":")).encode()
    return f"{PREFIX}{group}".encode(), value


def read_row(value: bytes) -> dict[TopicPartition, Noted]:
    """What `row_of` wrote. Of one that cannot be read nothing is the link's."""
    try:
        return {
            TopicPartition(str(topic), int(partition)): Noted(
                TopicPartition(str(source_topic), int(source_partition)), int(source), int(target)
            )
            for topic, partition, source_topic, source_partition, source, target in json.loads(value)
        }
    except (TypeError, ValueError) as error:
        _log.error("what the link has set of a group cannot be read: %r", error)
        return {}
