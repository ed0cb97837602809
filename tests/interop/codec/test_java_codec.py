"""Every message in every version through Kafka's own Java classes: same bytes, field names and values."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.codec import dumps
from protocol.codec.layout import is_flexible, shape_of
from protocol.codec.schema import Field, Message, RecordSchema, Request, Response, Struct
from protocol.errors import ErrorCode
from protocol.types import uuid_to_text
from tests.support.kafka_jars import CURRENT, LAST_WITH_ZOOKEEPER, ZOOKEEPER_MODE, available, jars
from tests.support.messages import all_messages, filled, sparse, versions
from tools.generate_messages import snake

pytestmark = pytest.mark.interop


def java(first_jars: list[Path], lines: str, *arguments: str) -> list[str]:
    if shutil.which("java") is None:
        pytest.skip("NOT COMPARED with Kafka's classes: no java on PATH")
    libraries = [path for name, path in available().items() if name.startswith(("jackson-", "slf4j-api"))]
    done = subprocess.run(
        [
            "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-cp", os.pathsep.join(map(str, [*first_jars, *libraries])),
            str(Path(__file__).with_name("KafkaCodec.java")), *arguments,
        ],
        input=lines, capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def java_class(cls: type[Message]) -> str:
    name = cls.__name__
    if issubclass(cls, RecordSchema):
        kind = "transaction" if name.startswith("TransactionLog") else "group"
        return f"org.apache.kafka.coordinator.{kind}.generated.{name}"
    suffix = "Data" if issubclass(cls, Request | Response) or name.endswith("Header") else ""
    return f"org.apache.kafka.common.message.{name}{suffix}"


def check(first_jars: list[Path], classes: list[type[Message]]) -> None:
    cases = [
        (cls, version, message)
        for cls in classes
        for version in versions(cls)
        for message in (filled(cls, version), filled(cls, version, items=0), sparse(cls, version), cls())
    ]
    wires = [dumps(message, version) for _, version, message in cases]
    lines = [f"{java_class(cls)} {v} {wire.hex()}" for (cls, v, _), wire in zip(cases, wires, strict=True)]
    answers = java(first_jars, "\n".join(lines) + "\n")
    assert len(answers) == len(cases)
    for (cls, version, message), wire, answer in zip(cases, wires, answers, strict=True):
        written, _, values = answer.partition("\t")
        assert written == wire.hex(), f"{cls.__name__} v{version}: {message}"
        where = f"{cls.__name__} v{version}"
        compare(message, json.loads(values), version, is_flexible(cls, version), where)


def compare(ours: Struct, theirs: dict[str, Any], version: int, flexible: bool, where: str) -> None:
    named = {snake(name[0].upper() + name[1:]): value for name, value in theirs.items()}
    shape = shape_of(type(ours), version, flexible)
    assert set(named) >= {field.name for field in shape.plain}, where
    for field in (*shape.plain, *shape.tagged):
        value = getattr(ours, field.name)
        if field.name not in named:
            assert value == getattr(type(ours)(), field.name), f"{where}.{field.name}"
        elif value is None or field.of is None:
            for one, other in plain(field, value, named[field.name]):
                assert one == other, f"{where}.{field.name}"
        else:
            items = (
                zip(value, named[field.name], strict=True)
                if field.kind == "[]struct"
                else [(value, named[field.name])]
            )
            for one, other in items:
                compare(one, other, version, flexible, f"{where}.{field.name}")


def plain(field: Field, ours: Any, theirs: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs of values to compare, in the way Kafka writes JSON."""
    if field.kind.startswith("[]") and ours is not None:
        for one, other in zip(ours, theirs, strict=True):
            yield from plain(field._replace(kind=field.kind[2:]), one, other)
    elif field.kind == "uuid":
        yield uuid_to_text(ours), theirs
    elif field.kind == "records":
        yield ours is None, theirs is None  # Kafka's JSON leaves the contents out; the bytes were compared
    elif field.kind == "bytes":
        yield ours, None if theirs is None else base64.b64decode(theirs)
    else:
        yield ours, theirs


def test_current_release() -> None:
    check(jars(*CURRENT), [cls for cls in all_messages() if cls.__name__ not in ZOOKEEPER_MODE])


def test_zookeeper_mode() -> None:
    check(jars(LAST_WITH_ZOOKEEPER), [cls for cls in all_messages() if cls.__name__ in ZOOKEEPER_MODE])


def test_error_codes() -> None:
    lines = java(jars(CURRENT[0]), "", "errors")
    expected = {(code, name, flag == "true") for code, name, flag in (line.split() for line in lines)}
    assert {(str(int(c)), c.name, c.retriable) for c in ErrorCode} == expected
