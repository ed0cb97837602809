"""SettleMirrorsRequest (private key 10001): make mirror partitions fit to be written, or cut them.

`leader_epoch` is the term in which that was decided. `cut_to` -1: end open transactions and forget the
source's producers; else records from that offset on are removed.
"""

from typing import TYPE_CHECKING, ClassVar

from protocol.codec.schema import EMPTY, Field, Request, Struct

if TYPE_CHECKING:
    from protocol.private.settle_mirrors_response import SettleMirrorsResponse


class SettleMirrorsPartition(Struct):
    __slots__ = (
        "index",
        "leader_epoch",
        "cut_to",
    )
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("index", "int32", "0+"),
        Field("leader_epoch", "int32", "0+", default=-1),
        Field("cut_to", "int64", "0+", default=-1),
    )

    def __init__(self, *, index: int = 0, leader_epoch: int = -1, cut_to: int = -1) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.cut_to = cut_to


class SettleMirrorsTopic(Struct):
    __slots__ = (
        "name",
        "source",
        "partitions",
    )
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", "0+"),
        Field("source", "string", "0+"),
        Field("partitions", "[]struct", "0+", of=SettleMirrorsPartition),
    )

    def __init__(
        self, *, name: str = "", source: str = "", partitions: list[SettleMirrorsPartition] = EMPTY
    ) -> None:
        self.name = name
        self.source = source
        self.partitions = [] if partitions is EMPTY else partitions


class SettleMirrorsRequest(Request["SettleMirrorsResponse"]):
    __slots__ = (
        "timeout_ms",
        "topics",
    )
    API_KEY: ClassVar[int] = 10001
    VALID_VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_FROM: ClassVar[int | None] = 0
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("timeout_ms", "int32", "0+"),
        Field("topics", "[]struct", "0+", of=SettleMirrorsTopic),
    )

    def __init__(self, *, timeout_ms: int = 0, topics: list[SettleMirrorsTopic] = EMPTY) -> None:
        self.timeout_ms = timeout_ms
        self.topics = [] if topics is EMPTY else topics
