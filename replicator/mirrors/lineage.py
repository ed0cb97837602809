"""Whose mirror a topic is, in words that the topic's own setting carries, and how epochs leave room.

Owns the text of `isthmus.mirror.source` and the two rules of leader epochs: a mirror's leader is in a later
term than its source, and a copy that begins to be written goes on in terms that its source never reaches.
Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol.types import uuid_to_text

HEADROOM: Final = 100
"""Elections of the source that a mirror's term stands above without being raised again."""
ERA: Final = 100_000
"""Terms of one owner of the log. Who takes over begins at the next multiple: no election of the old side,
which goes on counting by ones, gives an epoch that both sides have written in, so epochs tell where they
parted."""
FENCED: Final = "fenced"
TURNED: Final = "turned round for"
"""What an old source says while it is made a mirror: it takes nothing from anybody, its link neither."""


class MirrorSource(NamedTuple):
    """The link, and the topic at its source. A topic that is created again is another one."""

    link: str
    cluster_id: str
    topic_id: str

    @classmethod
    def of(cls, link: str, cluster_id: str | None, topic_id: bytes) -> MirrorSource:
        return cls(link, cluster_id or "", uuid_to_text(topic_id))

    @classmethod
    def read(cls, text: str) -> MirrorSource | None:
        """None for what no link has written."""
        parts = text.split("/")
        return cls(*parts) if len(parts) == 3 else None

    @property
    def text(self) -> str:
        return "/".join(self)


def is_of_a_switch(last_epoch: int, source_epoch: int) -> bool:
    """Whether a mirror's last batch is of a term that a promotion or a failover began there: of an era that
    its source, whose leader is in `source_epoch`, has not come to."""
    return source_epoch >= 0 and last_epoch // ERA > source_epoch // ERA


def next_era(epoch: int) -> int:
    """The first term of whoever takes over from an owner that wrote in `epoch`."""
    return (epoch // ERA + 1) * ERA
