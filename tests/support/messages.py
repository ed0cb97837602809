"""Protocol messages for codec tests: all classes, hypothesis strategies, and fully filled samples."""

import importlib
import pkgutil
from collections.abc import Iterator
from itertools import count
from types import ModuleType
from typing import Any

from hypothesis import strategies as st

import protocol.messages
import protocol.private
from protocol.codec.layout import is_flexible, is_nullable, shape_of
from protocol.codec.schema import Field, Message, Struct

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def all_messages() -> list[type[Message]]:
    """Every generated message class, by name."""
    return _messages_of(protocol.messages)


def private_messages() -> list[type[Message]]:
    """Those that only isthmus speaks."""
    return _messages_of(protocol.private)


def _messages_of(package: ModuleType) -> list[type[Message]]:
    found = []
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        found += [
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.__name__
        ]
    return sorted(found, key=lambda cls: cls.__name__)


def versions(cls: type[Message]) -> range:
    return range(cls.VALID_VERSIONS[0], cls.VALID_VERSIONS[1] + 1)


def all_versions() -> Iterator[tuple[type[Message], int]]:
    for cls in (*all_messages(), *private_messages()):
        for version in versions(cls):
            yield cls, version


def instances(cls: type[Struct], version: int, flexible: bool) -> st.SearchStrategy[Any]:
    """Any value that the version can carry; fields that it lacks keep their default."""
    shape = shape_of(cls, version, flexible)
    fields = {f.name: _values(f, version, flexible) for f in (*shape.plain, *shape.tagged)}
    return st.builds(cls, **fields)


def messages(cls: type[Message], version: int) -> st.SearchStrategy[Any]:
    return instances(cls, version, is_flexible(cls, version))


def _values(field: Field, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    if field.kind.startswith("[]"):
        values: st.SearchStrategy[Any] = st.lists(_items(field, version, flexible), max_size=3)
    else:
        values = _items(field, version, flexible)
    if field.kind == "struct" and field.tag >= 0 and not is_nullable(field, version):
        # A tagged struct that equals its default is not sent, and None is what then comes back.
        assert field.of is not None
        default = field.of()
        return st.none() | values.map(lambda value: None if value == default else value)
    return st.none() | values if is_nullable(field, version) else values


def _items(field: Field, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    kind = field.kind.removeprefix("[]")
    if kind in INTEGERS:
        return st.integers(*INTEGERS[kind])
    if kind == "struct":
        assert field.of is not None
        return instances(field.of, version, flexible)
    return {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.binary(min_size=16, max_size=16),
        "string": st.text(max_size=6),
        "bytes": st.binary(max_size=6),
        "records": st.binary(max_size=6),
    }[kind]


def filled(cls: type[Message], version: int, items: int = 2) -> Any:
    """An instance with every field of the version set; arrays have `items` items, inner ones at most two."""
    return _filled(cls, version, is_flexible(cls, version), items, count(1))


def _filled(cls: type[Struct], version: int, flexible: bool, items: int, numbers: "count[int]") -> Any:
    shape = shape_of(cls, version, flexible)
    values = {}
    for field in (*shape.plain, *shape.tagged):
        if field.kind.startswith("[]"):
            inner = min(items, 2)
            values[field.name] = [
                _filled_item(field, version, flexible, inner, numbers) for _ in range(items)
            ]
        else:
            values[field.name] = _filled_item(field, version, flexible, items, numbers)
    return cls(**values)


def _filled_item(field: Field, version: int, flexible: bool, items: int, numbers: "count[int]") -> Any:
    kind, number = field.kind.removeprefix("[]"), next(numbers)
    if kind == "struct":
        assert field.of is not None
        return _filled(field.of, version, flexible, items, numbers)
    if kind in INTEGERS:
        return number % 100 + 1
    return {
        "bool": True,
        "float64": number / 4,
        "uuid": bytes(15) + bytes((number % 255 + 1,)),
        "string": f"text-{number}",
        "bytes": f"bytes-{number}".encode(),
        "records": f"records-{number}".encode(),
    }[kind]


def sparse(cls: type[Message], version: int) -> Any:
    """An instance with null wherever the version allows null, and defaults elsewhere."""
    shape = shape_of(cls, version, is_flexible(cls, version))
    return cls(**{f.name: None for f in (*shape.plain, *shape.tagged) if is_nullable(f, version)})
