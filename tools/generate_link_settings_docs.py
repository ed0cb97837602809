"""Write docs/link-settings.md from the models of a link, or check it with --check (exit 1 when behind).

python -m tools.generate_link_settings_docs [--check]
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from replicator.mirrormaker import meanings
from replicator.settings import Flow, LinkSettings
from replicator.workers.control import LIVE_SETTINGS
from tools.generated_page import write_or_check
from topology.models import Link

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "link-settings.md"

HEAD = """# Settings of a link

Generated from the models by `python -m tools.generate_link_settings_docs`; do not edit. They stand in a
topology's YAML under the link ([examples/links.yaml](../examples/links.yaml)):

    links:
      east->west:
        topics: ['orders.*', payments]
        exactly_once: true
        rate_limit: 20000000        # bytes per second
        flow: {max_bytes_in_flight: 67108864}

A setting that is not known, or has a wrong value, ends each command with its line and what to write instead;
`isthmus topology show FILE` shows what counts.

*Changes* says how a changed value comes into effect: **now** by `isthmus links set LINK NAME=VALUE` (or
REST), within about two seconds at all workers, and after restarts too; else with a changed file at the next
**start** of all processes of the link. Links with `offsets: identical` change nothing while they run.

An `…_exclude` of a topology adds to the patterns that it is *besides*. `links set` and MirrorMaker 2's
properties file take the whole list, as MirrorMaker 2 does: what stands there takes the place of those
patterns, and who wants to keep them names them too (`links set` says which are dropped). Internal topics
(`__…`, `….internal`, `…-internal`) are never copied, whatever a list says.

*MirrorMaker 2* is the name in its files, which `isthmus replicate` takes as they are (`docs/mirrormaker.md`):
unset switches and replication factors are MirrorMaker 2's there, not those of this table.

"""
_COLUMNS = (
    "| setting | type | default | changes | meaning | MirrorMaker 2 |\n"
    "| --- | --- | --- | --- | --- | --- |\n"
)

_UNITS = (
    ("_interval_s", "seconds"),
    ("_s", "seconds"),
    ("_ms", "ms"),
    ("_bytes", "bytes"),
    ("_bytes_in_flight", "bytes"),
    ("rate_limit", "bytes per second"),
)


def unit(name: str) -> str:
    """In words; empty where it has none."""
    return next((words for end, words in _UNITS if name.endswith(end)), "")


def names_of_mirrormaker() -> dict[str, list[str]]:
    """By field of LinkSettings (`flow.x`), what files for MirrorMaker 2 call it (since Kafka 4.0)."""
    found: dict[str, list[str]] = {}
    tables = (("", meanings.LINK), ("consumer.", meanings.CONSUMER), ("producer.", meanings.PRODUCER))
    for prefix, table in tables:
        for name, meaning in table.items():
            if name not in meanings.LATE_NAMES:
                found.setdefault(meaning.field, []).append(prefix + name)
    return found


def rows() -> Iterator[tuple[str, ...]]:
    """Setting, type, default, changes, meaning, MirrorMaker 2's names."""
    theirs = names_of_mirrormaker()
    of_link, of_flow = (model.model_json_schema()["properties"] for model in (Link, Flow))
    for name, field in Link.model_fields.items():
        if name == "flow":
            for inner, one in Flow.model_fields.items():
                yield _row(f"flow.{inner}", one, of_flow[inner], one.description, theirs)
            continue
        known = LinkSettings.model_fields.get(name)
        meaning = field.description or (known.description if known is not None else None)
        yield _row(name, field, of_link[name], meaning, theirs)


def _row(
    name: str,
    field: FieldInfo,
    schema: Mapping[str, Any],
    meaning: str | None,
    theirs: Mapping[str, list[str]],
) -> tuple[str, ...]:
    assert meaning, f"{name}: nothing says what it means"
    default = field.get_default(call_default_factory=True)
    changes = "now" if name in LIVE_SETTINGS else "start"
    names = ", ".join(f"`{one}`" for one in theirs.get(name, ()))
    text = " ".join(meaning.split()).replace("|", r"\|")
    return f"`{name}`", _type(schema, unit(name)), _shown(default), changes, text, names


def _type(schema: Mapping[str, Any], of: str) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(one, of) for one in schema["anyOf"])
    kind = {
        "boolean": "true, false",
        "integer": "whole number",
        "number": "number",
        "array": "list of patterns",
        "null": "nothing",
    }.get(schema["type"], "text")
    if kind.endswith("number"):
        kind = " ".join(filter(None, (kind, f"of {of}" if of else "", _bounds(schema))))
    return kind


def _bounds(schema: Mapping[str, Any]) -> str:
    words = (("exclusiveMinimum", ">"), ("minimum", "≥"), ("maximum", "≤"))
    return ", ".join(
        f"{sign} {schema[key]:g}" if schema[key] < 1e4 else f"{sign} {schema[key]}"
        for key, sign in words
        if key in schema
    )


def _shown(value: Any) -> str:
    """As YAML has it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(repr(one) for one in value)}]`"
    return f"`{value!r}`" if isinstance(value, str) else f"`{value}`"


def document() -> str:
    """The text of docs/link-settings.md."""
    return HEAD + _COLUMNS + "".join(f"| {' | '.join(row)} |\n" for row in rows())


if __name__ == "__main__":
    sys.exit(write_or_check(DOCUMENT, document(), "tools.generate_link_settings_docs"))
