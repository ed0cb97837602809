"""An MM2 properties file becomes links: which line counts where, and what is wrong or without meaning in it.

Owns the layers (Kafka: MirrorMakerConfig): `x` for all, `A.x` for a cluster, `A->B.x` for one flow; clients'
by `producer.`, `consumer.`, `admin.`, also behind `source.` and `target.`. What MirrorMaker 2 does not take
from a layer has no effect there, which is said. Unset switches and replica counts are MirrorMaker 2's, since
people rely on them; unset intervals are ours, which are shorter. What each setting means is `meanings`'.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import permutations
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from protocol.client import parse_bootstrap
from protocol.client.properties import client_security
from protocol.properties_text import PropertiesError, Property, as_mapping, parse_properties
from replicator.mirrormaker import meanings
from replicator.mirrormaker.meanings import Meaning
from replicator.mirrormaker.providers import Provider, ProviderError, declared, resolve
from replicator.settings import LinkSettings, is_alias
from replicator.wrong_values import in_words

MIRRORMAKER_DEFAULTS: Mapping[str, Any] = {
    "sync_group_offsets": False,
    "replication_factor": 2,
    "internal_replication_factor": 3,
}

_ANYWHERE = "localhost:9092"
"""For a cluster whose address is wrong, which is said, so that the rest is checked too."""
_CLIENT = re.compile(r"(?:(source|target)\.)?(producer|consumer|admin)\.(.+)")
_END = re.compile(r"(source|target)\.cluster\.(.+)")
_FLOW = re.compile(r"([^.]*?)->([^.]*)\.(.+)")


@dataclass(frozen=True, order=True, slots=True)
class Remark:
    """Something about one setting, at the line where it stands (0: it stands nowhere)."""

    line: int
    setting: str
    text: str

    def __str__(self) -> str:
        return (
            f"line {self.line}: {self.setting}: {self.text}" if self.line else f"{self.setting}: {self.text}"
        )


class MirrorMakerFileError(Exception):
    """The file cannot be used; all problems at once, in line order."""

    def __init__(self, source: str, problems: Iterable[Remark]) -> None:
        self.problems = sorted(set(problems))
        count = len(self.problems)
        head = f"{source}: {count} problem{'s' if count != 1 else ''}"
        super().__init__("\n".join([head, *(f"  {problem}" for problem in self.problems)]))


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
        raise MirrorMakerFileError(source, [Remark(0, source, str(error))]) from None
    reader = _Reader(properties)
    links = reader.links()
    if reader.problems:
        raise MirrorMakerFileError(source, reader.problems)
    return MirrorMakerFile(tuple(links), tuple(sorted(set(reader.remarks))))


@dataclass(slots=True)
class _Scope:
    """Settings of one level, by name."""

    link: dict[str, Property] = field(default_factory=dict)
    client: dict[str, Property] = field(default_factory=dict)
    """By `consumer.x`, `producer.x`, `admin.x`, perhaps with `source.` or `target.` in front."""
    end: dict[str, Property] = field(default_factory=dict)
    """Address and security: bare for a cluster, behind `source.cluster.` or `target.cluster.` for a flow."""


class _Reader:
    def __init__(self, properties: list[Property]) -> None:
        self.problems: list[Remark] = []
        self.remarks: list[Remark] = []
        texts = as_mapping(properties)
        self._last = {item.name: item for item in properties}
        self._providers, wrong = declared(texts)
        self._clusters = tuple(filter(None, re.split(r"\s*,\s*", texts.get("clusters", "").strip())))
        self._all = _Scope()
        self._by_cluster: dict[str, _Scope] = {alias: _Scope() for alias in self._clusters}
        self._by_flow: dict[tuple[str, str], _Scope] = {}
        for name, text in wrong:
            self._wrong(self._last[name], text)
        if not self._plain_aliases():
            return  # which cluster a line means is not known
        self._twice(properties)
        self._torn(properties)
        for item in self._last.values():
            self._sort(self._resolved(item, self._providers))

    # Sorting lines into levels

    def _twice(self, properties: list[Property]) -> None:
        seen: dict[str, int] = {}
        for item in properties:
            if item.name in seen:
                before = seen[item.name]
                self._remark(item, f"stands in line {before} too; the last one counts, as in Java")
            seen[item.name] = item.line

    def _plain_aliases(self) -> bool:
        """Whether every alias can be one."""
        strange = [alias for alias in self._clusters if not is_alias(alias)]
        for alias in strange:
            hint = "; aliases stand with commas between them" if re.search(r"\s", alias) else ""
            self._wrong(
                self._last["clusters"], f"alias {alias!r} may hold letters, digits, '-' and '_' only{hint}"
            )
        return not strange

    def _torn(self, properties: list[Property]) -> None:
        """Names with spaces around their arrow. In MirrorMaker 2 such a line does nothing, without a word."""
        for item in properties:
            if _is_torn(item):
                self._wrong(
                    item, "a name ends at its first space, in Java too: write SOURCE->TARGET without spaces"
                )

    def _resolved(self, item: Property, providers: Mapping[str, Provider]) -> Property:
        try:
            return Property(item.name, resolve(item.text, providers), item.line)
        except ProviderError as error:
            self._wrong(item, str(error))
            return item

    def _sort(self, item: Property) -> None:
        if item.name == "clusters" or item.name.startswith("config.providers") or _is_torn(item):
            return
        flow = _FLOW.fullmatch(item.name)
        if flow is not None:
            self._sort_flow(item, flow[1], flow[2], flow[3])
            return
        alias, dot, rest = item.name.partition(".")
        if item.name == "enabled":
            self._all.link["enabled"] = item
        elif dot and alias in self._by_cluster:
            self._sort_cluster(item, alias, rest)
        elif not self._take(self._all, item, item.name):
            self._unknown(item, item.name)

    def _sort_flow(self, item: Property, source: str, target: str, rest: str) -> None:
        strangers = [alias for alias in (source, target) if alias not in self._clusters]
        if strangers:
            self._wrong(item, f"{strangers[0]} is not in clusters{_near(strangers[0], self._clusters)}")
            return
        scope = self._by_flow.setdefault((source, target), _Scope())
        if rest == "enabled":
            scope.link[rest] = item
        elif not self._take(scope, item, rest):
            self._unknown(item, rest)

    def _sort_cluster(self, item: Property, alias: str, rest: str) -> None:
        scope = self._by_cluster[alias]
        if rest == "bootstrap.servers" or meanings.is_security(rest):
            scope.end[rest] = item
        elif rest in meanings.LINK and rest not in meanings.OF_THE_WORKER:
            self._remark(
                item,
                "has no effect for a cluster, in MirrorMaker 2 neither: write it as"
                f" {rest}, or SOURCE->TARGET.{rest}",
            )
        elif rest in meanings.CLIENT_NO_MEANING and rest not in meanings.TAKE_OVER:
            self._remark(item, meanings.CLIENT_NO_MEANING[rest])
        elif not self._take(scope, item, rest):
            self._unknown(item, rest)

    def _take(self, scope: _Scope, item: Property, name: str) -> bool:
        """Whether the name is known; what has no meaning gets its remark."""
        if name in meanings.LINK or name in meanings.CHECKED or name in meanings.TAKE_OVER:
            if name in meanings.LATE_NAMES:
                self._remark(
                    item, f"is {meanings.LATE_NAMES[name]} since Kafka 2.7 and ignored by 4.0; taken"
                )
            scope.link[name] = item
        elif name in meanings.NO_MEANING:
            self._remark(item, meanings.NO_MEANING[name])
        elif name.partition(".")[0] in meanings.CHANGES_RECORDS:
            self._changes_records(item, name)
        elif meanings.is_security(name):
            scope.end[name] = item
        elif (end := _END.fullmatch(name)) is not None:
            return self._take_end(scope, item, end[2], name)
        elif (client := _CLIENT.fullmatch(name)) is not None:
            return self._take_client(scope, item, client[2], client[3], name)
        elif name.startswith(meanings.WORKER_PREFIXES):
            self._remark(item, "there is no Connect worker here: remove it")
        elif name in meanings.CLIENT_NO_MEANING:
            self._remark(item, meanings.CLIENT_NO_MEANING[name])
        else:
            return False
        return True

    def _changes_records(self, item: Property, name: str) -> None:
        """What such a list names would change what is copied, so it is an error; an empty one is nothing."""
        kind, part, _ = name.partition(".")
        if part or not item.text.strip():
            self._remark(item, f"there are no {kind} here: remove it")
        else:
            self._wrong(item, "names Java classes, which cannot run here: records are copied as they are")

    def _take_end(self, scope: _Scope, item: Property, rest: str, name: str) -> bool:
        if rest == "bootstrap.servers" or meanings.is_security(rest):
            scope.end[name] = item
        elif rest in meanings.CLIENT_NO_MEANING:
            self._remark(item, meanings.CLIENT_NO_MEANING[rest])
        else:
            return False
        return True

    def _take_client(self, scope: _Scope, item: Property, role: str, rest: str, name: str) -> bool:
        known = {"consumer": meanings.CONSUMER, "producer": meanings.PRODUCER}.get(role, {})
        rest = rest.removeprefix("override.")  # as Connect has it for a connector
        if (rest in known or meanings.is_security(rest)) and scope is self._all:
            self._remark(
                item, f"has no effect for all, in MirrorMaker 2 neither: write CLUSTER.{role}.{rest}"
            )
        elif rest in known or meanings.is_security(rest):
            scope.client[name.replace(f"{role}.override.", f"{role}.", 1)] = item
        elif rest in meanings.CLIENT_NO_MEANING:
            self._remark(item, meanings.CLIENT_NO_MEANING[rest])
        elif rest in meanings.CONSUMER or rest in meanings.PRODUCER:
            self._remark(item, f"has no meaning for a {role}: remove it")
        else:
            return False
        return True

    # Links

    def links(self) -> list[LinkSettings]:
        """One for each flow that is switched on."""
        if not all(map(is_alias, self._clusters)):
            return []
        if not self._clusters:
            self.problems.append(
                Remark(0, "clusters", "is missing: the aliases of all clusters, with commas")
            )
            return []
        for twice in {alias for alias in self._clusters if self._clusters.count(alias) > 1}:
            self._wrong(self._last["clusters"], f"names {twice} twice")
        made = [self._link(source, target) for source, target in self._flows() if self._on(source, target)]
        if not made and not self.problems:
            pair = "->".join((*self._clusters, "B")[:2])
            text = f"no flow is switched on: write for example {pair}.enabled = true"
            self.problems.append(Remark(0, "enabled", text))
        return [link for link in made if link is not None]

    def _flows(self) -> list[tuple[str, str]]:
        """Those that the file speaks of and, with `enabled` for all, every other too for which MirrorMaker 2
        runs a herder: it does so to have heartbeats."""
        everywhere, named = self._all.link, list(self._by_flow)
        if "enabled" not in everywhere:
            return named
        for pair in permutations(self._clusters, 2):
            scope = self._by_flow.setdefault(pair, _Scope())
            beats = scope.link.get("emit.heartbeats.enabled") or everywhere.get("emit.heartbeats.enabled")
            if beats is None or beats.text.strip().lower() == "true":
                scope.link.setdefault("enabled", everywhere["enabled"])
        return [*named, *(pair for pair in self._by_flow if pair not in named)]

    def _on(self, source: str, target: str) -> bool:
        item = self._by_flow[source, target].link.get("enabled")
        if source == target and item is not None:
            self._wrong(item, "copies a cluster into itself")
            return False
        return item is not None and self._read(item, Meaning("", meanings.switch)) is True

    def _link(self, source: str, target: str) -> LinkSettings | None:
        scopes = (self._all, self._by_cluster[target], self._by_flow[source, target])
        values: dict[str, Any] = dict(MIRRORMAKER_DEFAULTS)
        origins: dict[str, Property] = {}
        for scope in scopes:
            for name, item in scope.link.items():
                if name in meanings.CHECKED:
                    self._read(item, Meaning("", meanings.CHECKED[name]))
                elif name in meanings.LINK:
                    self._put(values, origins, item, meanings.LINK[name])
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
        flow = self._by_flow[source, target]
        for role, table, cluster, side in (
            ("consumer", meanings.CONSUMER, source, "source"),
            ("producer", meanings.PRODUCER, target, "target"),
        ):
            for scope in (self._by_cluster[cluster], flow):
                for prefix in (f"{role}.", f"{side}.{role}."):
                    yield from (
                        (table, name.removeprefix(prefix), item)
                        for name, item in scope.client.items()
                        if name.startswith(prefix)
                    )

    def _end(
        self, alias: str, side: str, role: str, scopes: tuple[_Scope, _Scope, _Scope]
    ) -> dict[str, Any] | None:
        everywhere, _, flow = scopes
        cluster = self._by_cluster[alias]
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
            self.problems.append(Remark(0, f"{alias}.bootstrap.servers", "is missing"))
            return None
        try:
            parse_bootstrap(address.text)
        except ValueError as error:
            self._wrong(address, str(error))
            return None
        properties = {name: item.text for name, item in found.items()}
        try:
            client_security(properties)
        except ValueError as error:  # begins with the setting's name and repeats no secret
            setting = str(error).partition(":")[0]
            beside = setting.rpartition(".")[0] + ".location"  # of a store whose type stands nowhere
            self._wrong(found.get(setting) or found.get(beside) or address, str(error))
            return None
        return {"alias": alias, "bootstrap": address.text.strip(), "properties": properties}

    def _take_over(self, source: str, scopes: Sequence[_Scope]) -> dict[str, str]:
        said: dict[str, str] = {}
        for name, levels in meanings.TAKE_OVER.items():
            found = [scopes[level].link[name].text for level in levels if name in scopes[level].link]
            said |= {name: found[0]} if found else {}
            for level, scope in enumerate(scopes):
                if level not in levels and name in scope.link:
                    self._remark(scope.link[name], "has no effect here, in MirrorMaker 2 neither: remove it")
        topic = said.get("offsets.storage.topic", said.get("offset.storage.topic"))
        made = {
            "offsets_topic": topic or f"mm2-offsets.{source}.internal",
            "group": said.get("group.id", f"{source}-mm2"),
        }
        return made | ({"connector": said["name"]} if "name" in said else {})

    # Values and what is said about them

    def _put(
        self, values: dict[str, Any], origins: dict[str, Property], item: Property, meaning: Meaning
    ) -> None:
        before = len(self.problems)
        value = self._read(item, meaning)
        if len(self.problems) > before:
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
            self._wrong(item, str(error))
            return None

    def _invalid(self, link: str, error: ValidationError, origins: Mapping[str, Property]) -> None:
        for found in error.errors():
            where = ".".join(str(part) for part in found["loc"])
            message = in_words([found]) if where else found["msg"].removeprefix("Value error, ")
            item = origins.get(where) or origins.get(str(found["loc"][0]) if found["loc"] else "")
            if item is not None:
                self._wrong(item, message)
            else:
                self.problems.append(Remark(0, link, message))

    def _unknown(self, item: Property, name: str) -> None:
        known = {
            *meanings.LINK,
            *meanings.CHECKED,
            *meanings.NO_MEANING,
            *(f"{alias}.bootstrap.servers" for alias in self._clusters),
            *(f"consumer.{one}" for one in (*meanings.CONSUMER, *meanings.CLIENT_NO_MEANING)),
            *(f"producer.{one}" for one in (*meanings.PRODUCER, *meanings.CLIENT_NO_MEANING)),
        }
        self._wrong(item, f"is no setting of MirrorMaker 2{_near(name, known)}")

    def _wrong(self, item: Property, text: str) -> None:
        self.problems.append(Remark(item.line, item.name, text))

    def _remark(self, item: Property, text: str) -> None:
        self.remarks.append(Remark(item.line, item.name, text))


def _is_torn(item: Property) -> bool:
    return item.name.endswith("->") or item.text.startswith("->")


def _near(word: str, known: Iterable[str]) -> str:
    near = get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f"; did you mean '{near[0]}'?" if near else ""
