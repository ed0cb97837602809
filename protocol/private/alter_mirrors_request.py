"""AlterMirrorsRequest (private key 10002): whose mirror a topic is, and higher leader epochs.

For the controller. `changes_source` says whether `source` (null: no mirror any more) is to be set over
`expected_source`; each partition gets a new term of at least `least_epoch` with the leader that it has.
"""

from typing import TYPE_CHECKING, ClassVar

from protocol.codec.schema import EMPTY, Field, Request, Struct

if TYPE_CHECKING:
    from protocol.private.alter_mirrors_response import AlterMirrorsResponse


class AlterMirrorsPartition(Struct):
    __slots__ = (
        "index",
        "least_epoch",
    )
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("index", "int32", "0+"),
        Field("least_epoch", "int32", "0+"),
    )

    def __init__(self, *, index: int = 0, least_epoch: int = 0) -> None:
        self.index = index
        self.least_epoch = least_epoch


class AlterMirrorsTopic(Struct):
    __slots__ = (
        "name",
        "changes_source",
        "expected_source",
        "source",
        "partitions",
    )
    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field("name", "string", "0+"),
        Field("changes_source", "bool", "0+"),
        Field("expected_source", "string", "0+", null="0+", default=None),
        Field("source", "string", "0+", null="0+", default=None),
        Field("partitions", "[]struct", "0+", of=AlterMirrorsPartition),
    )

    def __init__(
        self,
        *,
        name: str = "",
        changes_source: bool = False,
        expected_source: str | None = None,
        source: str | None = None,
        partitions: list[AlterMirrorsPartition] = EMPTY,
    ) -> None:
        self.name = name
        self.changes_source = changes_source
        self.expected_source = expected_source
        self.source = source
        self.partitions = [] if partitions is EMPTY else partitions


class AlterMirrorsRequest(Request["AlterMirrorsResponse"]):
    __slots__ = ("topics",)
    API_KEY: ClassVar[int] = 10002
    VALID_VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_FROM: ClassVar[int | None] = 0
    FIELDS: ClassVar[tuple[Field, ...]] = (Field("topics", "[]struct", "0+", of=AlterMirrorsTopic),)

    def __init__(self, *, topics: list[AlterMirrorsTopic] = EMPTY) -> None:
        self.topics = [] if topics is EMPTY else topics
