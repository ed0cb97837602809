"""MirrorAppendResponse (private key 10000): where each mirror partition stands.

`last_epoch` is the leader epoch of the last batch, -1 without any.
"""

from typing import ClassVar

from protocol.codec.schema import EMPTY, Field, Response, Struct


class MirrorAppendPartitionResult(Struct):
    __slots__ = (
        "index",
        "error_code",
        "error_message",
        "log_start_offset",
        "log_end_offset",
        "high_watermark",
        "leader_epoch",
        "last_epoch",
        "open_transactions",
    )
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("index", "int32", "0+"),
        Field("error_code", "int16", "0+"),
        Field("error_message", "string", "0+", null="0+", default=None),
        Field("log_start_offset", "int64", "0+", default=-1),
        Field("log_end_offset", "int64", "0+", default=-1),
        Field("high_watermark", "int64", "0+", default=-1),
        Field("leader_epoch", "int32", "0+", default=-1),
        Field("last_epoch", "int32", "0+", default=-1),
        Field("open_transactions", "int32", "0+"),
    )

    def __init__(
        self,
        *,
        index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        log_start_offset: int = -1,
        log_end_offset: int = -1,
        high_watermark: int = -1,
        leader_epoch: int = -1,
        last_epoch: int = -1,
        open_transactions: int = 0,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.error_message = error_message
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = high_watermark
        self.leader_epoch = leader_epoch
        self.last_epoch = last_epoch
        self.open_transactions = open_transactions


class MirrorAppendTopicResult(Struct):
    __slots__ = (
        "name",
        "partitions",
    )
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", "0+"),
        Field("partitions", "[]struct", "0+", of=MirrorAppendPartitionResult),
    )

    def __init__(self, *, name: str = "", partitions: list[MirrorAppendPartitionResult] = EMPTY) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class MirrorAppendResponse(Response):
    __slots__ = ("topics",)
    API_KEY: ClassVar[int] = 10000
    VALID_VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_FROM: ClassVar[int | None] = 0
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("topics", "[]struct", "0+", of=MirrorAppendTopicResult),)

    def __init__(self, *, topics: list[MirrorAppendTopicResult] = EMPTY) -> None:
        self.topics = [] if topics is EMPTY else topics
