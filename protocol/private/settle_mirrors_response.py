"""SettleMirrorsResponse (private key 10001): what was done in each partition."""

from typing import ClassVar

from protocol.codec.schema import EMPTY, Field, Response, Struct


class SettleMirrorsPartitionResult(Struct):
    __slots__ = (
        "index",
        "error_code",
        "error_message",
        "log_end_offset",
        "aborted_transactions",
    )
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("index", "int32", "0+"),
        Field("error_code", "int16", "0+"),
        Field("error_message", "string", "0+", null="0+", default=None),
        Field("log_end_offset", "int64", "0+", default=-1),
        Field("aborted_transactions", "int32", "0+"),
    )

    def __init__(
        self,
        *,
        index: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        log_end_offset: int = -1,
        aborted_transactions: int = 0,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.error_message = error_message
        self.log_end_offset = log_end_offset
        self.aborted_transactions = aborted_transactions


class SettleMirrorsTopicResult(Struct):
    __slots__ = (
        "name",
        "partitions",
    )
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", "0+"),
        Field("partitions", "[]struct", "0+", of=SettleMirrorsPartitionResult),
    )

    def __init__(self, *, name: str = "", partitions: list[SettleMirrorsPartitionResult] = EMPTY) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class SettleMirrorsResponse(Response):
    __slots__ = ("topics",)
    API_KEY: ClassVar[int] = 10001
    VALID_VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_FROM: ClassVar[int | None] = 0
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("topics", "[]struct", "0+", of=SettleMirrorsTopicResult),)

    def __init__(self, *, topics: list[SettleMirrorsTopicResult] = EMPTY) -> None:
        self.topics = [] if topics is EMPTY else topics
