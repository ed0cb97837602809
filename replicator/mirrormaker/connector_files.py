"""Files of Kafka Connect's connectors: JSON as it is posted to a worker or as its REST API returns it, or the
properties that connect-standalone takes.

Owns what such a file may look like and on which line each setting stands. Of JSON everything is taken that
holds a `connector.class` of MirrorMaker 2: `{"name": …, "config": {…}}`, the bare config, lists of these, and
what `/connectors?expand=info` returns; also several one after the other. The worker's own settings stand in
connect-distributed.properties beside it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from protocol.counted import counted
from protocol.properties_text import PropertiesError, Property, parse_properties, read_properties_file
from replicator.mirrormaker.connectors import (
    CHECKPOINT,
    HEARTBEAT,
    OF_THE_WORKER,
    SOURCE,
    Connector,
    Worker,
    links_of_connectors,
)
from replicator.mirrormaker.file import MirrorMakerFile, file_of
from replicator.mirrormaker.kubernetes_secrets import Secrets
from replicator.mirrormaker.providers import strimzis
from replicator.mirrormaker.remarks import MirrorMakerFileError, Remark, Remarks
from replicator.mirrormaker.yaml_nodes import scalar

WORKER_FILE: Final = "connect-distributed.properties"

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?')
_CLASS: Final = "connector.class"


class _Pairs(list[tuple[str, Any]]):
    """An object of JSON, in its order and with names that come twice."""


def parse_connectors(text: str, file: Path) -> MirrorMakerFile:
    """Raises MirrorMakerFileError with all problems."""
    said = Remarks()
    is_json = file.suffix == ".json" or text.lstrip().startswith(("{", "["))
    found = list(_of_json(text, str(file), said) if is_json else _of_properties(text, file))
    known = [one for one in found if one.kind in (SOURCE, CHECKPOINT, HEARTBEAT)]
    if not known:
        beside = f", only {counted(len(found), 'other')}" if found else ""
        said.missing(_CLASS, f"no connector of MirrorMaker 2 is in the file{beside}")
    for one in known:
        if not one.name.text:
            said.wrong(one.name, "is missing: where its progress is kept goes by the connector's name")
    links = (
        links_of_connectors(known, _worker(file, said), said, strimzis(Secrets(file).read)) if known else []
    )
    return file_of(str(file), links, said)


def _worker(file: Path, said: Remarks) -> Worker:
    beside = file.parent / WORKER_FILE
    how = (
        f"Put the worker's {WORKER_FILE} beside the file (as {beside}), or write one with"
        " offset.storage.topic, group.id and status.storage.topic (of an image: CONNECT_OFFSET_STORAGE_TOPIC"
        " and so on)"
    )
    if not beside.exists():
        return Worker(how=how)
    try:
        lines = read_properties_file(beside)
    except PropertiesError as error:
        said.missing(WORKER_FILE, str(error))
        return Worker(how=how)
    return Worker(
        {
            item.name: replace(item, place=f"{item.name} of {WORKER_FILE}")
            for item in lines
            if item.name in OF_THE_WORKER or item.name.startswith("config.providers")
        },
        how,
    )


def _of_properties(text: str, file: Path) -> Iterator[Connector]:
    try:
        config = {item.name: item for item in parse_properties(text, str(file))}
    except PropertiesError as error:
        raise MirrorMakerFileError(str(file), [Remark(0, "", str(error))]) from None
    yield _connector(config.get("name", Property("name", "", 1)), config)


def _connector(name: Property, config: Mapping[str, Property]) -> Connector:
    kind = config[_CLASS].text.strip().rpartition(".")[2] if _CLASS in config else ""
    return Connector(kind, name, config)


def _of_json(text: str, source: str, said: Remarks) -> Iterator[Connector]:
    ends = [match.start() for match in re.finditer("\n", text)]
    names = (bisect_left(ends, match.start()) + 1 for match in _STRING.finditer(text) if match[1])
    decoder = json.JSONDecoder(object_pairs_hook=_Pairs)
    position, seen = 0, set[str]()
    while position < len(text.rstrip()):
        start = len(text) - len(text[position:].lstrip())
        try:
            value, position = decoder.raw_decode(text, start)
        except (json.JSONDecodeError, RecursionError) as error:
            line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
            what = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
            raise MirrorMakerFileError(source, [Remark(line, "", f"is no JSON: {what}")]) from None
        for connector in _walk(_marked(value, names), "", said):
            if connector.name.text in seen and connector.name.text:
                said.wrong(connector.name, f"{connector.name.text} stands in the file twice")
            seen.add(connector.name.text)
            yield connector


def _marked(value: Any, lines: Iterator[int]) -> Any:
    """Objects as {name: (line, value)}: names stand in the text in the order in which this asks for lines."""
    if isinstance(value, _Pairs):
        made: dict[str, tuple[int, Any]] = {}
        for name, inner in value:
            line = next(lines)
            made[name] = line, _marked(inner, lines)
        return made
    if isinstance(value, list):
        return [_marked(inner, lines) for inner in value]
    return value


def _walk(value: Any, name: str, said: Remarks, line: int = 1) -> Iterator[Connector]:
    """`name`: what the object stands under."""
    if isinstance(value, list):
        for inner in value:
            yield from _walk(inner, "", said, line)
    if not isinstance(value, dict):
        return
    config, at = value, line
    if isinstance(value.get("config", (0, None))[1], dict):
        at, config = value["config"]
    if _CLASS in config:
        line, text = value.get("name") or config.get("name") or (at, name)
        who = str(text)
        yield _connector(Property("name", who, line, who), _config(config, who, said))
        return
    for key, (where, inner) in value.items():
        yield from _walk(inner, key, said, where)


def _config(config: Mapping[str, tuple[int, Any]], connector: str, said: Remarks) -> dict[str, Property]:
    """What REST returns is one line: the connector's name has to tell where something stands."""
    found: dict[str, Property] = {}
    for name, (line, value) in config.items():
        text, place = scalar(value), f"{name} of {connector}" if connector else name
        if text is None:
            said.wrong(Property(name, "", line, place), "has to be a text, a number, true or false")
        elif value is not None:
            found[name] = Property(name, text, line, place)
    return found
