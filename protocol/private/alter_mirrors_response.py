"""AlterMirrorsResponse (private key 10002): what was done, per topic and partition."""

from typing import ClassVar

from protocol.codec.schema import EMPTY, Field, Response, Struct


class AlterMirrorsPartitionResult(Struct):
    __slots__ = (
        "index",
        "error_code",
        "error_message",
        "leader_epoch",
    )
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("index", "int32", "0+"),
        Field("error_code", "int16", "0+"),
        Field("error_message", "string", "0+", null="0+", default=None),
        Field("leader_epoch", "int32", "0+", default=-1),
    )

    def __init__(
        self, *, index: int = 0, error_code: int = 0, error_message: str | None = None, leader_epoch: int = -1
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.error_message = error_message
        self.leader_epoch = leader_epoch


class AlterMirrorsTopicResult(Struct):
    __slots__ = (
        "name",
        "error_code",
        "error_message",
        "partitions",
    )
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", "0+"),
        Field("error_code", "int16", "0+"),
        Field("error_message", "string", "0+", null="0+", default=None),
        Field("partitions", "[]struct", "0+", of=AlterMirrorsPartitionResult),
    )

    def __init__(
        self,
        *,
        name: str = "",
        error_code: int = 0,
        error_message: str | None = None,
        partitions: list[AlterMirrorsPartitionResult] = EMPTY,
    ) -> None:
        self.name = name
        self.error_code = error_code
        self.error_message = error_message
        self.partitions = [] if partitions is EMPTY else partitions


class AlterMirrorsResponse(Response):
    __slots__ = ("topics",)
    API_KEY: ClassVar[int] = 10002
    VALID_VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_FROM: ClassVar[int | None] = 0
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("topics", "[]struct", "0+", of=AlterMirrorsTopicResult),)

    def __init__(self, *, topics: list[AlterMirrorsTopicResult] = EMPTY) -> None:
        self.topics = [] if topics is EMPTY else topics
