"""An MM2 properties file becomes links: the settings of each flow that is switched on, from all levels.

Unset switches and replica counts are MirrorMaker 2's, since people rely on them; unset intervals are ours,
which are shorter. Which level a line is of is `levels`' to say, what each setting means `meanings`'.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from protocol.client import parse_bootstrap
from protocol.client.properties import client_security, without_effect
from protocol.properties_text import PropertiesError, Property, parse_properties
from replicator.mirrormaker import meanings
from replicator.mirrormaker.levels import Levels, Scope
from replicator.mirrormaker.meanings import Meaning
from replicator.mirrormaker.providers import Provider
from replicator.mirrormaker.remarks import MirrorMakerFileError, Remark, Remarks
from replicator.settings import LinkSettings
from replicator.wrong_values import in_words

MIRRORMAKER_DEFAULTS: Mapping[str, Any] = {
    "sync_group_offsets": False,
    "replication_factor": 2,
    "internal_replication_factor": 3,
}

_ANYWHERE = "localhost:9092"
"""For a cluster whose address is wrong, which is said, so that the rest is checked too."""


@dataclass(frozen=True, slots=True)
class MirrorMakerFile:
    """The links that are switched on, and what the reader should know."""

    links: tuple[LinkSettings, ...]
    remarks: tuple[Remark, ...]


def is_mirrormaker_text(text: str) -> bool:
    """Whether a text looks like an MM2 properties file (and not like YAML)."""
    return re.search(r"(?m)^\s*clusters\s*=", text) is not None


def read_mirrormaker_file(path: Path) -> MirrorMakerFile:
    """Raises MirrorMakerFileError with all problems, also when the file cannot be read."""
    try:
        text = path.read_text(encoding="iso-8859-1")
    except OSError as error:
        raise MirrorMakerFileError(str(path), [Remark(0, str(path), str(error.strerror))]) from None
    return parse_mirrormaker(text, str(path))


def parse_mirrormaker(text: str, source: str = "mm2.properties") -> MirrorMakerFile:
    """As `read_mirrormaker_file`, from text."""
    try:
        properties = parse_properties(text, source)
    except PropertiesError as error:
        raise MirrorMakerFileError(source, [Remark(0, "", str(error))]) from None
    said = Remarks()
    return file_of(source, links_of(properties, said), said)


def links_of(
    properties: list[Property], said: Remarks, more: Mapping[str, Provider] | None = None
) -> list[LinkSettings]:
    """Of all lines. What is wrong is said to `said`; `more` as `Levels` has it."""
    return _Reader(Levels(properties, said, more), said).links()


def file_of(source: str, links: Sequence[LinkSettings], said: Remarks) -> MirrorMakerFile:
    """Raises MirrorMakerFileError if something is wrong."""
    if said.problems:
        raise MirrorMakerFileError(source, said.problems)
    return MirrorMakerFile(tuple(links), tuple(sorted(set(said.remarks))))


class _Reader:
    def __init__(self, levels: Levels, said: Remarks) -> None:
        self._levels = levels
        self._said = said

    def links(self) -> list[LinkSettings]:
        """One for each flow that is switched on."""
        if not self._levels.clear or not self._levels.clusters:
            return []
        made = [
            self._link(source, target) for source, target in self._levels.flows() if self._on(source, target)
        ]
        if not made and not self._said.problems:
            pair = "->".join((*self._levels.clusters, "B")[:2])
            text = f"no flow is switched on: write for example {pair}.enabled = true"
            self._said.missing("enabled", text)
        return [link for link in made if link is not None]

    def _on(self, source: str, target: str) -> bool:
        item = self._levels.by_flow[source, target].link.get("enabled")
        if source == target and item is not None:
            self._said.wrong(item, "copies a cluster into itself")
            return False
        return item is not None and self._read(item, Meaning("", meanings.switch)) is True

    def _link(self, source: str, target: str) -> LinkSettings | None:
        scopes = (self._levels.all, self._levels.by_cluster[target], self._levels.by_flow[source, target])
        values: dict[str, Any] = dict(MIRRORMAKER_DEFAULTS)
        origins: dict[str, Property] = {}
        for scope in scopes:
            for name, item in scope.link.items():
                if name in meanings.CHECKED:
                    self._read(item, Meaning("", meanings.CHECKED[name]))
                elif name in meanings.LINK:
                    self._put(values, origins, item, meanings.LINK[name])
        for interval in (name for name in meanings.OFF_BELOW_ZERO if values.get(name, 0) < 0):
            del values[interval]
            values[meanings.OFF_BELOW_ZERO[interval]] = False
        for table, name, item in self._client_settings(source, target):
            if name in table:
                self._put(values, origins, item, table[name])
        ends = (
            self._end(source, "source", "consumer", scopes),
            self._end(target, "target", "producer", scopes),
        )
        for name, alias, end in zip(("source", "target"), (source, target), ends, strict=True):
            values[name] = end or {"alias": alias, "bootstrap": _ANYWHERE}
        values["take_over"] = self._take_over(source, scopes)
        try:
            made = LinkSettings.model_validate(values)
        except ValidationError as error:
            self._invalid(f"{source}->{target}", error, origins)
            return None
        return made if None not in ends else None

    def _client_settings(
        self, source: str, target: str
    ) -> Iterator[tuple[Mapping[str, Meaning], str, Property]]:
        """What concerns the reading and the writing client of a flow, the most special last."""
        flow = self._levels.by_flow[source, target]
        for role, table, cluster, side in (
            ("consumer", meanings.CONSUMER, source, "source"),
            ("producer", meanings.PRODUCER, target, "target"),
        ):
            for scope in (self._levels.by_cluster[cluster], flow):
                for prefix in (f"{role}.", f"{side}.{role}."):
                    yield from (
                        (table, name.removeprefix(prefix), item)
                        for name, item in scope.client.items()
                        if name.startswith(prefix)
                    )

    def _end(
        self, alias: str, side: str, role: str, scopes: tuple[Scope, Scope, Scope]
    ) -> dict[str, Any] | None:
        everywhere, _, flow = scopes
        cluster = self._levels.by_cluster[alias]
        found: dict[str, Property] = {}
        for scope, prefixes in (
            (everywhere.end, ("",)),
            (cluster.end, ("",)),
            (cluster.client, ("admin.", f"{role}.")),
            (flow.client, ("admin.", f"{role}.", f"{side}.admin.", f"{side}.{role}.")),
            (flow.end, ("", f"{side}.cluster.")),
        ):
            for prefix in prefixes:
                for name, item in scope.items():
                    rest = name.removeprefix(prefix)
                    if name.startswith(prefix) and (
                        rest == "bootstrap.servers" or meanings.is_security(rest)
                    ):
                        found[rest] = item
        address = found.pop("bootstrap.servers", None)
        if address is None:
            self._said.missing(f"{alias}.bootstrap.servers", "is missing")
            return None
        try:
            parse_bootstrap(address.text)
        except ValueError as error:
            self._said.wrong(address, str(error))
            return None
        properties = {name: item.text for name, item in found.items()}
        try:
            client_security(properties)
        except ValueError as error:
            self._cannot_connect(found, address, str(error))
            return None
        mechanism = properties.get("sasl.mechanism", "")
        for item in (item for name, item in found.items() if without_effect(name, mechanism)):
            self._said.note(item, "is not taken here, where no Java runs: what counts is in the other lines")
        return {"alias": alias, "bootstrap": address.text.strip(), "properties": properties}

    def _cannot_connect(self, found: Mapping[str, Property], address: Property, error: str) -> None:
        """`error` begins with the setting's name and repeats no secret."""
        setting, _, text = error.partition(": ")
        if setting not in found:
            beside = setting.rpartition(".")[0] + ".location"  # of a store whose type stands nowhere
            self._said.wrong(found.get(beside) or address, error)
        elif not self._said.is_wrong(found[setting]):  # what a Secret lacks is no PEM either
            self._said.wrong(found[setting], text)

    def _take_over(self, source: str, scopes: Sequence[Scope]) -> dict[str, object]:
        said: dict[str, str] = {}
        for name, levels in meanings.TAKE_OVER.items():
            found = [scopes[level].link[name].text for level in levels if name in scopes[level].link]
            said |= {name: found[0]} if found else {}
            for level, scope in enumerate(scopes):
                if level not in levels and name in scope.link:
                    self._said.note(
                        scope.link[name], "has no effect here, in MirrorMaker 2 neither: remove it"
                    )
        topic = said.get("offsets.storage.topic", said.get("offset.storage.topic"))
        made: dict[str, object] = {
            "offsets_topic": topic or f"mm2-offsets.{source}.internal",
            "group": said.get("group.id", f"{source}-mm2"),
        }
        made |= {"connector": said["name"]} if "name" in said else {}
        made |= {"status_topic": said["status.storage.topic"]} if "status.storage.topic" in said else {}
        return made | self._partitions(scopes)

    def _partitions(self, scopes: Sequence[Scope]) -> dict[str, object]:
        name = "offset.storage.partitions"
        levels = meanings.TAKE_OVER[name]
        item = next((scopes[level].link[name] for level in levels if name in scopes[level].link), None)
        count = self._read(item, Meaning("", meanings.partition_count)) if item is not None else None
        return {} if count is None else {"partitions": count}

    # Values and what is said about them

    def _put(
        self, values: dict[str, Any], origins: dict[str, Property], item: Property, meaning: Meaning
    ) -> None:
        before = len(self._said.problems)
        value = self._read(item, meaning)
        if len(self._said.problems) > before:
            return  # named already; the default stands in for it, so that the rest is checked too
        group, dot, name = meaning.field.rpartition(".")
        if dot:
            values.setdefault(group, {})[name] = value
        else:
            values[meaning.field] = value
        origins[meaning.field] = item

    def _read(self, item: Property, meaning: Meaning) -> object:
        try:
            return meaning.read(item.text.strip())
        except ValueError as error:
            self._said.wrong(item, str(error))
            return None

    def _invalid(self, link: str, error: ValidationError, origins: Mapping[str, Property]) -> None:
        for found in error.errors():
            where = ".".join(str(part) for part in found["loc"])
            message = in_words([found]) if where else found["msg"].removeprefix("Value error, ")
            item = origins.get(where) or origins.get(str(found["loc"][0]) if found["loc"] else "")
            if item is not None:
                self._said.wrong(item, message)
            else:
                self._said.missing(link, message)
