"""Our bytes read by other people's codecs, and written again by them: same values, same bytes.

kio (Rust reader, Python writer) and kafka-python (Python) have their own schemas and code. Samples carry
different numbers in all fields, so that fields of equal size cannot stand in for each other.
"""

import datetime
import importlib
import io
import pkgutil
import uuid
import warnings
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pkgutil import resolve_name
from typing import Any

import pytest
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

from protocol.codec import dumps
from protocol.codec.layout import is_flexible, shape_of
from protocol.codec.schema import Message, Request, Response, Struct
from protocol.messages.api_versions_response import ApiVersionsResponse
from protocol.types import ZERO_UUID
from tests.support.messages import all_messages, filled, sparse, versions
from tools.generate_messages import snake

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # importlib.resources.read_text in kafka-python
    import kafka.protocol
    from kafka.protocol.api_message import ApiMessage

    for _module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in _module.name:
            importlib.import_module(_module.name)


def samples(cls: type[Message], version: int) -> list[Any]:
    return [filled(cls, version), filled(cls, version, items=0), sparse(cls, version), cls()]


def assert_same(ours: Struct, theirs: Any, version: int, flexible: bool) -> None:
    """All fields of this version have the same value on both sides."""
    shape = shape_of(type(ours), version, flexible)
    present = {field.name for field in (*shape.plain, *shape.tagged)}
    for field in ours.FIELDS:
        if field.name not in present:
            continue
        value = getattr(ours, field.name)
        other = _attribute(theirs, field.name)
        if field.of is None:
            assert value == _plain(other, field.kind), field.name
        elif field.kind == "struct":
            if value is not None:
                assert_same(value, other, version, flexible)
        else:
            assert (value is None) == (other is None), field.name
            assert len(value or ()) == len(other or ())
            for one, another in zip(value or (), other or (), strict=True):
                assert_same(one, another, version, flexible)


def _attribute(theirs: Any, name: str) -> Any:
    """kio drops the unit of durations and marks Python's own names; kafka-python shortens one name."""
    shorter = name.removeprefix("topic_").removeprefix("cluster_")
    for known in (name, name.removesuffix("_ms"), f"{name}_", shorter):
        with suppress(AttributeError):
            return getattr(theirs, known)
    raise AttributeError(f"{type(theirs).__name__} has no {name}")


def _plain(value: Any, kind: str = "") -> Any:
    if value is None and kind == "uuid":
        return ZERO_UUID
    if value is None and kind == "int32":
        return -(2**31)  # kafka-python: authorized operations that were not asked for
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, set):
        return sum(1 << bit for bit in value)  # authorized operations in kafka-python
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _kio_classes(cls: type[Message]) -> dict[int, Any]:
    kind = "request" if issubclass(cls, Request) else "response" if issubclass(cls, Response) else ""
    name = snake(cls.__name__).removesuffix(f"_{kind}") if kind else snake(cls.__name__)
    found = {}
    for version, paths in schema_name_map.get(name, {}).items():
        for entity, path in paths.items():
            if not kind or entity.name == kind:
                found[version] = path
    return found


KIO = {cls: classes for cls in all_messages() if (classes := _kio_classes(cls))}


@pytest.mark.parametrize("cls", KIO, ids=lambda cls: cls.__name__)
def test_kio_reads_and_writes_the_same(cls: type[Message]) -> None:
    shared = sorted(set(KIO[cls]) & set(versions(cls)))
    assert shared
    for version in shared:
        theirs = resolve_name(KIO[cls][version])
        read: Callable[..., tuple[Any, int]] = entity_reader(theirs)
        write = entity_writer(theirs)
        for message in samples(cls, version):
            wire = dumps(message, version)
            entity, size = read(memoryview(wire).toreadonly(), 0)
            assert size == len(wire)
            assert_same(message, entity, version, is_flexible(cls, version))
            out = io.BytesIO()
            write(out, entity)
            assert out.getvalue() == wire


def _kafka_python_classes() -> dict[str, Any]:
    found, rest = {}, list(ApiMessage.__subclasses__())
    while rest:
        cls = rest.pop()
        rest += cls.__subclasses__()
        found.setdefault(cls.__name__, cls)
    return found


KAFKA_PYTHON = _kafka_python_classes()
SHARED = [cls for cls in all_messages() if cls.__name__ in KAFKA_PYTHON]


@pytest.mark.parametrize("cls", SHARED, ids=lambda cls: cls.__name__)
def test_kafka_python_reads_and_writes_the_same(cls: type[Message]) -> None:
    theirs = KAFKA_PYTHON[cls.__name__]
    shared = [version for version in versions(cls) if version <= theirs.max_version]
    assert shared
    for version in shared:
        for message in samples(cls, version):
            if cls is ApiVersionsResponse:
                message.error_code = 0  # with an error kafka-python reads every version as v0 (KIP-511)
            wire = dumps(message, version)
            entity = theirs.decode(wire, version=version)
            assert_same(message, entity, version, is_flexible(cls, version))
            entity._header = None  # kafka-python 3.0 needs it to be set before it encodes
            assert entity.encode(version=version) == wire


def test_nearly_everything_is_compared() -> None:
    kio_versions = sum(len(set(classes) & set(versions(cls))) for cls, classes in KIO.items())
    assert (len(KIO), kio_versions) > (125, 500)
    assert len(SHARED) >= 100
