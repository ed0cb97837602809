"""The committed messages against Kafka's definitions: this fails when either side has moved.

Always compared: the definitions that kafka-python bundles (client APIs of an earlier 4.x). Compared when they
are there, skipped aloud otherwise: Kafka's own jars, byte for byte with what the generator writes. Where to
look for jars: `ISTHMUS_KAFKA_JARS` (paths separated by ":"), or what the interop tools have fetched.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from protocol.codec.layout import is_flexible, is_nullable, shape_of
from protocol.codec.schema import EMPTY, Field, Message, Struct, version_range
from tests.support.kafka_jars import CURRENT, LAST_WITH_ZOOKEEPER, ZOOKEEPER_MODE, jars
from tests.support.messages import all_messages
from tools.generate_messages import default_of, definitions, message_modules, modules, snake, wanted, write

COMMITTED = Path(__file__).resolve().parents[3] / "protocol" / "messages"
BY_NAME = {cls.__name__: cls for cls in all_messages()}
Json = dict[str, Any]


@pytest.mark.interop
class TestAgainstJars:
    def test_messages_of_the_current_release(self, tmp_path: Path) -> None:
        texts = message_modules(definitions(jars(*CURRENT)))
        assert len(texts) == len(wanted()) - len(ZOOKEEPER_MODE)
        _assert_committed(texts, tmp_path)

    def test_messages_of_zookeeper_mode(self, tmp_path: Path) -> None:
        found = definitions(jars(LAST_WITH_ZOOKEEPER))
        _assert_committed(message_modules({name: found[name] for name in ZOOKEEPER_MODE}), tmp_path)

    def test_the_whole_package(self, tmp_path: Path) -> None:
        texts = modules(definitions(jars(*CURRENT, LAST_WITH_ZOOKEEPER)))
        assert set(texts) == {path.name for path in COMMITTED.glob("*.py")}
        _assert_committed(texts, tmp_path)


def _assert_committed(texts: dict[str, str], folder: Path) -> None:
    write(texts, folder)
    different = [name for name in texts if (folder / name).read_text() != (COMMITTED / name).read_text()]
    assert not different, f"not what tools/generate_messages.py writes: {', '.join(different)}"


def bundled_definitions() -> dict[str, Json]:
    spec = find_spec("kafka")
    assert spec is not None
    assert spec.origin is not None
    return definitions([Path(spec.origin).parent / "protocol/schemas/resources"])


BUNDLED = bundled_definitions()
SHARED = sorted(set(BUNDLED) & set(BY_NAME))


def test_kafka_python_bundles_most_client_apis() -> None:
    assert len(SHARED) > 100


@pytest.mark.parametrize("name", SHARED)
def test_facts_agree_with_what_kafka_python_bundles(name: str) -> None:
    definition, cls = BUNDLED[name], BY_NAME[name]
    theirs, ours = (
        version_range(definition["validVersions"]),
        range(cls.VALID_VERSIONS[0], cls.VALID_VERSIONS[1] + 1),
    )
    if definition["type"] in ("request", "response"):
        assert definition["apiKey"] == cls.API_KEY  # type: ignore[attr-defined]
        assert theirs[0] == ours[0]
    for version in range(max(theirs[0], ours[0]), min(theirs[-1], ours[-1]) + 1):
        flexible = version in version_range(definition.get("flexibleVersions", "none"))
        assert flexible == is_flexible(cls, version)
        common = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", [])}
        expected = list(_facts_of_json(definition["fields"], common, version))
        assert list(_facts_of_class(cls, version, flexible)) == expected


Facts = tuple[Any, ...]


def _facts_of_json(
    fields: list[Json], common: dict[str, list[Json]], version: int, depth: int = 0
) -> Iterator[Facts]:
    plain, tagged = [], []
    for field in fields:
        if version in version_range(field.get("taggedVersions", "none")):
            tagged.append(field)
        elif version in version_range(field["versions"]):
            plain.append(field)
    for field in (*plain, *sorted(tagged, key=lambda f: f["tag"])):
        inner = field["type"].removeprefix("[]")
        is_struct = inner[0].isupper()
        kind = field["type"].replace(inner, "struct") if is_struct else field["type"]
        default = default_of(field)
        null = version in version_range(field.get("nullableVersions", "none"))
        yield (
            depth, snake(field["name"]), kind, null, field.get("tag", -1) if field in tagged else -1,
            "new" if default is ... else default, str(field.get("ignorable", "false")).lower() == "true",
        )  # fmt: skip
        if is_struct:
            yield from _facts_of_json(field.get("fields") or common[inner], common, version, depth + 1)


def _facts_of_class(cls: type[Struct], version: int, flexible: bool, depth: int = 0) -> Iterator[Facts]:
    shape = shape_of(cls, version, flexible)
    for field in (*shape.plain, *shape.tagged):
        tag = field.tag if field in shape.tagged else -1
        yield (
            depth, field.name, field.kind, is_nullable(field, version), tag,
            _default(cls, field), field.ignorable,
        )  # fmt: skip
        if field.of is not None:
            yield from _facts_of_class(field.of, version, flexible, depth + 1)


def _default(cls: type[Struct], field: Field) -> Any:
    """What the constructor gives, which must also be what the codec takes for the default."""
    value = getattr(cls(), field.name)
    if field.default is not EMPTY:
        assert value == field.default
    return "new" if isinstance(value, Struct) else value


def test_every_committed_message_is_generated() -> None:
    assert sorted(BY_NAME) == sorted(wanted())
    assert all(issubclass(cls, Message) for cls in BY_NAME.values())
