"""Which topic of the target is the current mirror of a source topic, once one of the two was created again.

Owns the rows `mirror/<source topic>` of the progress topic and the decision, pure: with `on_recreated:
new_mirror` another topic of the source under the same name, or another one of the target, is answered by a
new mirror, `<mirror>.mirror-<n>`. Topic ids decide, so a restart finds what happened while nobody looked.
Knows no clients (`renewal`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from transfer.ledger import PartitionLedger, same_topic

_log = logging.getLogger("isthmus.replicator")

PREFIX = "mirror/"
_KEPT = 20
"""Former mirrors of a topic whose mirrors are made again in place."""


@dataclass(frozen=True, slots=True)
class Former:
    """A mirror that is not written any more; it stays as it is until somebody deletes it."""

    at_target: str
    source_id: str
    target_id: str
    why: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Mirror:
    """The current mirror of a source topic. Ids are Kafka's 22-character texts; `target_id` is empty until
    the topic is made."""

    base: str
    """The name by the link's naming."""
    source_id: str
    target_id: str = ""
    number: int = 1
    former: tuple[Former, ...] = ()

    @property
    def at_target(self) -> str:
        return self.base if self.number == 1 else f"{self.base}.mirror-{self.number}"

    def belongs(self, source_id: str, target_id: str) -> bool:
        """Whether it is what connects these two topics; an empty id is one that a cluster does not tell."""
        here, there = same_topic(self.source_id, source_id), same_topic(self.target_id, target_id)
        return here and bool(self.target_id) and there

    def followed_by(self, source_id: str, why: str, at_ms: int, taken: Callable[[str], bool]) -> Mirror:
        """A new mirror beside this one, with a name that is not taken."""
        former = self.former
        if self.target_id:  # else nobody has ever written it
            former = (*former, Former(self.at_target, self.source_id, self.target_id, why, at_ms))
        names = {one.at_target for one in former}
        made = replace(self, source_id=source_id, target_id="", former=former)
        while made.at_target in names or (made.at_target != self.at_target and taken(made.at_target)):
            made = replace(made, number=made.number + 1)
        return made

    def to_json(self) -> dict[str, Any]:
        """For the status and machines."""
        return {
            "current": self.at_target,
            "number": self.number,
            "source_topic_id": self.source_id,
            "target_topic_id": self.target_id,
            "former": [asdict(one) for one in self.former],
        }


def settled(
    known: Mirror, source_id: str, target_id: str, at_ms: int, taken: Callable[[str], bool]
) -> Mirror:
    """What is to be the current mirror now. `target_id` empty: there is no topic of that name for certain."""
    if not same_topic(known.source_id, source_id):
        why = f"the source topic was created again (its id was {known.source_id}, now {source_id})"
        return known.followed_by(source_id, why, at_ms, taken)
    if not known.target_id:
        return replace(known, target_id=target_id)
    if not target_id:
        return known.followed_by(source_id, "the mirror was deleted at the target", at_ms, taken)
    if not same_topic(known.target_id, target_id):
        why = f"the mirror was created again at the target (its id was {known.target_id}, now {target_id})"
        return known.followed_by(source_id, why, at_ms, taken)
    return known


def in_place(known: Mirror | None, name: str, source_id: str, target_id: str, at_ms: int) -> Mirror | None:
    """Of a link that keeps offsets, whose mirrors have no other names: the mirror as it is now, with those
    that were deleted before it; None: that is on record. `target_id` was perhaps seen a while ago: ids never
    come back, so that of a former one is not the current one."""
    if known is None:
        return Mirror(name, source_id, target_id)
    if same_topic(known.target_id, target_id) or target_id in {one.target_id for one in known.former}:
        return None
    why = (
        f"the mirror was deleted at the target and made again (its id was {known.target_id}, now {target_id})"
    )
    if not same_topic(known.source_id, source_id):
        why += f", as the source topic was (its id was {known.source_id}, now {source_id})"
    gone = Former(known.at_target, known.source_id, known.target_id, f"{why}; it is filled anew", at_ms)
    return Mirror(name, source_id, target_id, former=(*known.former, gone)[-_KEPT:])


def from_ledgers(base: str, ledgers: Iterable[PartitionLedger], source_id: str) -> Mirror:
    """The first row of a topic: what its ledgers say they connect (a link that had another policy before), or
    nothing is known and the mirror is today's."""
    found = [one for one in ledgers if one.target.topic == base]
    current = next((one for one in found if same_topic(one.source.topic_id, source_id)), None)
    known = current or next(iter(found), None)
    return (
        Mirror(base, source_id)
        if known is None
        else Mirror(base, known.source.topic_id, known.target.topic_id)
    )


def row_of(topic: str, mirror: Mirror) -> tuple[bytes, bytes]:
    """The row of the progress topic."""
    return f"{PREFIX}{topic}".encode(), json.dumps(asdict(mirror), separators=(",", ":")).encode()


def read_row(value: bytes) -> Mirror | None:
    """What `row_of` wrote. None for one that cannot be read: then the ledgers say what was connected."""
    try:
        data = json.loads(value)
        former = tuple(Former(**one) for one in data["former"])
        number = int(data["number"])
        return Mirror(str(data["base"]), str(data["source_id"]), str(data["target_id"]), number, former)
    except (KeyError, TypeError, ValueError) as error:
        _log.error("the row of a mirror cannot be read: %r", error)
        return None
