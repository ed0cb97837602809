"""What a message class is: slots, and one table row per field. The codec compiles these tables.

Owns the base classes of the generated modules and the notation of version ranges ("3+", "0-12", "5"), which
is Kafka's own (KIP-482 for flexible versions and tags). Knows nothing about bytes. A class covers all
versions of its struct: a field that a version does not have keeps its default.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from protocol.types import Buffer, uuid_to_text

EMPTY: Any = ()
"""Parameter default that stands for "the zero of the field's type", so that no mutable default is shared."""

RecordData = Buffer | Sequence[Buffer] | None
"""Record batches: a memoryview once decoded; to encode, one buffer or several that follow each other."""

R = TypeVar("R", bound="Response")

OPEN = 32767


def version_range(text: str) -> range:
    """The versions that Kafka's notation means; empty for "" and "none"."""
    if text in ("", "none"):
        return range(0)
    low, dash, high = text.removesuffix("+").partition("-")
    if text.endswith("+"):
        return range(int(low), OPEN + 1)
    return range(int(low), int(high if dash else low) + 1)


class Field(NamedTuple):
    """One field of a struct.

    `kind` is Kafka's type ("int32", "[]string", "records"), with "struct" and "[]struct" for what `of` names.
    """

    name: str
    kind: str
    versions: str
    of: "type[Struct] | None" = None
    null: str = "none"
    """Versions in which null may be sent."""
    default: Any = EMPTY
    """Kafka's default where it is not the zero of the type."""
    tag: int = -1
    tagged: str = "none"
    """Versions in which the field travels as a tagged field (KIP-482)."""
    ignorable: bool = False
    """Whether a value may be dropped in versions without the field."""
    flexible: str = ""
    """Overrides the message's flexible versions (only the client id of the request header)."""


class Struct:
    """Base of all generated classes: equality by value, a repr for logs without contents of byte fields."""

    __slots__ = ()
    FIELDS: ClassVar[tuple[Field, ...]] = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.FIELDS)

    def __repr__(self) -> str:
        shown = (f"{f.name}={_show(f, getattr(self, f.name))}" for f in self.FIELDS)
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """A struct that stands alone on the wire or in a record."""

    __slots__ = ()
    VALID_VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE_FROM: ClassVar[int | None] = None


class Response(Message):
    __slots__ = ()
    API_KEY: ClassVar[int]


class Encoded(Response):
    """A response whose bytes are there already; its maker answers for version and layout."""

    __slots__ = ("segments",)
    VALID_VERSIONS = (0, 32767)

    def __init__(self, segments: list[Buffer]) -> None:
        self.segments = segments


if TYPE_CHECKING:

    class Request(Message, Generic[R]):
        """A request; its type parameter is the class of the answer."""

        API_KEY: ClassVar[int]
else:

    class Request(Message):
        """A request. Subscripting with the answer's class is for type checkers only and costs nothing."""

        __slots__ = ()

        def __class_getitem__(cls, _answer):
            return cls


class RecordSchema(Message):
    """Key or value of a record in one of Kafka's internal topics, without the int16 in front of it.

    That int16 is `RECORD_TYPE` for keys and the version of the schema for values.
    """

    __slots__ = ()
    RECORD_TYPE: ClassVar[int]


def _show(field: Field, value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        if field.kind == "uuid":
            return uuid_to_text(bytes(value))
        return f"<{len(value)} bytes>"
    if field.kind == "records" and value is not None:
        return f"<{sum(map(len, value))} bytes in {len(value)} segments>"
    return repr(value)
