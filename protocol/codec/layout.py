"""What one struct looks like in one version: which fields, in which manner, and how small it can be.

The compilers ask only this module about versions; nothing here reads or writes bytes.
"""

from typing import NamedTuple

from protocol.codec.schema import Field, Message, Struct, version_range

FIXED = {
    "bool": ("?", 1), "int8": ("b", 1), "int16": ("h", 2), "uint16": ("H", 2), "int32": ("i", 4),
    "uint32": ("I", 4), "int64": ("q", 8), "float64": ("d", 8), "uuid": ("16s", 16),
}  # fmt: skip
"""Code in `struct` layouts and size of each type of fixed size."""


class Shape(NamedTuple):
    """A struct in one version. `flexible`: compact lengths, and tagged fields at the end (KIP-482)."""

    plain: list[Field]
    tagged: list[Field]
    absent: list[Field]
    flexible: bool


def is_flexible(message: type[Message], version: int) -> bool:
    return message.FLEXIBLE_FROM is not None and version >= message.FLEXIBLE_FROM


def shape_of(struct: type[Struct], version: int, flexible: bool) -> Shape:
    plain, tagged, absent = [], [], []
    for field in struct.FIELDS:
        if version in version_range(field.tagged):
            tagged.append(field)
        elif version in version_range(field.versions):
            plain.append(field)
        else:
            absent.append(field)
    return Shape(plain, sorted(tagged, key=lambda f: f.tag), absent, flexible)


def is_compact(field: Field, flexible: bool) -> bool:
    return flexible and field.flexible != "none"


def is_nullable(field: Field, version: int) -> bool:
    return version in version_range(field.null)


def min_size(struct: type[Struct], version: int, flexible: bool) -> int:
    """Fewest bytes that an instance takes; bounds array counts before anything is allocated."""
    shape = shape_of(struct, version, flexible)
    return int(flexible) + sum(field_min_size(f, version, flexible) for f in shape.plain)


def field_min_size(field: Field, version: int, flexible: bool) -> int:
    if field.kind in FIXED:
        return FIXED[field.kind][1]
    if field.kind == "struct":
        assert field.of is not None
        return 1 if is_nullable(field, version) else min_size(field.of, version, flexible)
    if is_compact(field, flexible):
        return 1
    return 2 if field.kind == "string" else 4


def item_min_size(field: Field, version: int, flexible: bool) -> int:
    """Fewest bytes of one item of an array field; never 0, so that a count is always bounded."""
    inner = field.kind.removeprefix("[]")
    if inner == "struct":
        assert field.of is not None
        return max(1, min_size(field.of, version, flexible))
    return field_min_size(Field("", inner, "0+"), version, flexible)
