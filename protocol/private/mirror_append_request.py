"""MirrorAppendRequest (private key 10000): batches for mirror partitions, as their source stores them.

With `expected_offset` -1 nothing is appended: the answer tells where the mirror stands. `source` has to be
what the topic's setting `isthmus.mirror.source` says. `log_start_offset` is the source's, -1: not known.
"""

from typing import TYPE_CHECKING, ClassVar

from protocol.codec.schema import EMPTY, Field, RecordData, Request, Struct

if TYPE_CHECKING:
    from protocol.private.mirror_append_response import MirrorAppendResponse


class MirrorAppendPartition(Struct):
    __slots__ = (
        "index",
        "expected_offset",
        "log_start_offset",
        "records",
    )
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("index", "int32", "0+"),
        Field("expected_offset", "int64", "0+", default=-1),
        Field("log_start_offset", "int64", "0+", default=-1),
        Field("records", "records", "0+", null="0+", default=None),
    )

    def __init__(
        self,
        *,
        index: int = 0,
        expected_offset: int = -1,
        log_start_offset: int = -1,
        records: RecordData = None,
    ) -> None:
        self.index = index
        self.expected_offset = expected_offset
        self.log_start_offset = log_start_offset
        self.records = records


class MirrorAppendTopic(Struct):
    __slots__ = (
        "name",
        "source",
        "partitions",
    )
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", "0+"),
        Field("source", "string", "0+"),
        Field("partitions", "[]struct", "0+", of=MirrorAppendPartition),
    )

    def __init__(
        self, *, name: str = "", source: str = "", partitions: list[MirrorAppendPartition] = EMPTY
    ) -> None:
        self.name = name
        self.source = source
        self.partitions = [] if partitions is EMPTY else partitions


class MirrorAppendRequest(Request["MirrorAppendResponse"]):
    __slots__ = (
        "timeout_ms",
        "topics",
    )
    API_KEY: ClassVar[int] = 10000
    VALID_VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_FROM: ClassVar[int | None] = 0
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("timeout_ms", "int32", "0+"),
        Field("topics", "[]struct", "0+", of=MirrorAppendTopic),
    )

    def __init__(self, *, timeout_ms: int = 0, topics: list[MirrorAppendTopic] = EMPTY) -> None:
        self.timeout_ms = timeout_ms
        self.topics = [] if topics is EMPTY else topics
