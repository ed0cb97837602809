"""The lines of a file of MirrorMaker 2, by the level where each counts.

Owns the layers (Kafka: MirrorMakerConfig): `x` for all, `A.x` for a cluster, `A->B.x` for one flow; clients'
by `producer.`, `consumer.`, `admin.`, also behind `source.` and `target.`. What MirrorMaker 2 does not take
from a layer has no effect there, which is said. What a value means is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import permutations

from protocol.properties_text import Property, as_mapping
from replicator.mirrormaker import meanings
from replicator.mirrormaker.providers import Provider, ProviderError, declared, resolve, unknown
from replicator.mirrormaker.remarks import Remarks
from replicator.settings import is_alias

_CLIENT = re.compile(r"(?:(source|target)\.)?(producer|consumer|admin)\.(.+)")
_END = re.compile(r"(source|target)\.cluster\.(.+)")
_FLOW = re.compile(r"([^.]*?)->([^.]*)\.(.+)")


@dataclass(slots=True)
class Scope:
    """Settings of one level, by name."""

    link: dict[str, Property] = field(default_factory=dict)
    client: dict[str, Property] = field(default_factory=dict)
    """By `consumer.x`, `producer.x`, `admin.x`, perhaps with `source.` or `target.` in front."""
    end: dict[str, Property] = field(default_factory=dict)
    """Address and security: bare for a cluster, behind `source.cluster.` or `target.cluster.` for a flow."""


class Levels:
    """All lines, sorted; what is wrong or without effect was said to `said`."""

    def __init__(
        self, properties: list[Property], said: Remarks, more: Mapping[str, Provider] | None = None
    ) -> None:
        """`more`: providers of a Connect worker, for lines that are its connectors': one that is not known
        then is a problem, for its worker knows it."""
        self._said = said
        self._of_connect = more is not None
        texts = as_mapping(properties)
        self.last = {item.name: item for item in properties}
        self._providers, wrong = declared(texts, more or {})
        self.clusters = tuple(filter(None, re.split(r"\s*,\s*", texts.get("clusters", "").strip())))
        self.all = Scope()
        self.by_cluster: dict[str, Scope] = {alias: Scope() for alias in self.clusters}
        self.by_flow: dict[tuple[str, str], Scope] = {}
        for name, text in wrong if more is None else ():  # a worker's others are perhaps not for this link
            self._said.wrong(self.last[name], text)
        self.clear = self._are_clear()
        """Else which cluster a line means is not known, and none is sorted."""
        if not self.clear:
            return
        self._twice(properties)
        self._torn(properties)
        for item in self.last.values():
            self._sort(self._resolved(item, self._providers))

    # Sorting lines into levels

    def _twice(self, properties: list[Property]) -> None:
        seen: dict[str, int] = {}
        for item in properties:
            if item.name in seen:
                before = seen[item.name]
                self._said.note(item, f"stands in line {before} too; the last one counts, as in Java")
            seen[item.name] = item.line

    def _are_clear(self) -> bool:
        if not self.clusters:
            self._said.missing("clusters", "is missing: the aliases of all clusters, with commas")
        strange = [alias for alias in self.clusters if not is_alias(alias)]
        for alias in strange:
            hint = "; aliases stand with commas between them" if re.search(r"\s", alias) else ""
            text = f"alias {alias!r} may hold letters, digits, '-' and '_' only{hint}"
            self._said.wrong(self.last["clusters"], text)
        for twice in {alias for alias in self.clusters if self.clusters.count(alias) > 1}:
            self._said.wrong(self.last["clusters"], f"names {twice} twice")
        return not strange

    def _torn(self, properties: list[Property]) -> None:
        """Names with spaces around their arrow. In MirrorMaker 2 such a line does nothing, without a word."""
        for item in properties:
            if _is_torn(item):
                self._said.wrong(
                    item, "a name ends at its first space, in Java too: write SOURCE->TARGET without spaces"
                )

    def _resolved(self, item: Property, providers: Mapping[str, Provider]) -> Property:
        strange = unknown(item.text, providers) if self._of_connect else []
        if strange:
            self._said.wrong(
                item,
                f"'{strange[0]}' is a config provider of the Connect worker, which is not known here: there"
                f" are {', '.join(name for name in providers if name.islower())}",
            )
            return item
        try:
            return replace(item, text=resolve(item.text, providers))
        except ProviderError as error:
            self._said.wrong(item, str(error))
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
            self.all.link["enabled"] = item
        elif dot and alias in self.by_cluster:
            self._sort_cluster(item, alias, rest)
        elif not self._take(self.all, item, item.name):
            self._unknown(item, item.name)

    def _sort_flow(self, item: Property, source: str, target: str, rest: str) -> None:
        strangers = [alias for alias in (source, target) if alias not in self.clusters]
        if strangers:
            self._said.wrong(item, f"{strangers[0]} is not in clusters{_near(strangers[0], self.clusters)}")
            return
        scope = self.by_flow.setdefault((source, target), Scope())
        if rest == "enabled":
            scope.link[rest] = item
        elif not self._take(scope, item, rest):
            self._unknown(item, rest)

    def _sort_cluster(self, item: Property, alias: str, rest: str) -> None:
        scope = self.by_cluster[alias]
        if rest == "bootstrap.servers" or meanings.is_security(rest):
            scope.end[rest] = item
        elif rest in meanings.LINK and rest not in meanings.OF_THE_WORKER:
            self._said.note(
                item,
                "has no effect for a cluster, in MirrorMaker 2 neither: write it as"
                f" {rest}, or SOURCE->TARGET.{rest}",
            )
        elif rest in meanings.CLIENT_NO_MEANING and rest not in meanings.TAKE_OVER:
            self._said.note(item, meanings.CLIENT_NO_MEANING[rest])
        elif not self._take(scope, item, rest):
            self._unknown(item, rest)

    def _take(self, scope: Scope, item: Property, name: str) -> bool:
        """Whether the name is known; what has no meaning gets its remark."""
        if name in meanings.LINK or name in meanings.CHECKED or name in meanings.TAKE_OVER:
            if name in meanings.LATE_NAMES:
                self._said.note(
                    item, f"is {meanings.LATE_NAMES[name]} since Kafka 2.7 and ignored by 4.0; taken"
                )
            scope.link[name] = item
        elif name in meanings.NO_MEANING:
            self._said.note(item, meanings.NO_MEANING[name])
        elif name.partition(".")[0] in meanings.CHANGES_RECORDS:
            self._changes_records(item, name)
        elif meanings.is_security(name):
            scope.end[name] = item
        elif (end := _END.fullmatch(name)) is not None:
            return self._take_end(scope, item, end[2], name)
        elif (client := _CLIENT.fullmatch(name)) is not None:
            return self._take_client(scope, item, client[2], client[3], name)
        elif name.startswith(meanings.WORKER_PREFIXES):
            self._said.note(item, "there is no Connect worker here: remove it")
        elif name in meanings.CLIENT_NO_MEANING:
            self._said.note(item, meanings.CLIENT_NO_MEANING[name])
        else:
            return False
        return True

    def _changes_records(self, item: Property, name: str) -> None:
        """What such a list names would change what is copied, so it is an error; an empty one is nothing."""
        kind, part, _ = name.partition(".")
        if part or not item.text.strip():
            self._said.note(item, f"there are no {kind} here: remove it")
        else:
            self._said.wrong(
                item, "names Java classes, which cannot run here: records are copied as they are"
            )

    def _take_end(self, scope: Scope, item: Property, rest: str, name: str) -> bool:
        if rest == "bootstrap.servers" or meanings.is_security(rest):
            scope.end[name] = item
        elif rest in meanings.CLIENT_NO_MEANING:
            self._said.note(item, meanings.CLIENT_NO_MEANING[rest])
        else:
            return False
        return True

    def _take_client(self, scope: Scope, item: Property, role: str, rest: str, name: str) -> bool:
        known = {"consumer": meanings.CONSUMER, "producer": meanings.PRODUCER}.get(role, {})
        rest = rest.removeprefix("override.")  # as Connect has it for a connector
        if (rest in known or meanings.is_security(rest)) and scope is self.all:
            self._said.note(
                item, f"has no effect for all, in MirrorMaker 2 neither: write CLUSTER.{role}.{rest}"
            )
        elif rest in known or meanings.is_security(rest):
            scope.client[name.replace(f"{role}.override.", f"{role}.", 1)] = item
        elif rest in meanings.CLIENT_NO_MEANING:
            self._said.note(item, meanings.CLIENT_NO_MEANING[rest])
        elif rest in meanings.CONSUMER or rest in meanings.PRODUCER:
            self._said.note(item, f"has no meaning for a {role}: remove it")
        else:
            return False
        return True

    def flows(self) -> list[tuple[str, str]]:
        """Those that the file speaks of and, with `enabled` for all, every other too for which MirrorMaker 2
        runs a herder: it does so to have heartbeats."""
        everywhere, named = self.all.link, list(self.by_flow)
        if "enabled" not in everywhere:
            return named
        for pair in permutations(self.clusters, 2):
            scope = self.by_flow.setdefault(pair, Scope())
            beats = scope.link.get("emit.heartbeats.enabled") or everywhere.get("emit.heartbeats.enabled")
            if beats is None or beats.text.strip().lower() == "true":
                scope.link.setdefault("enabled", everywhere["enabled"])
        return [*named, *(pair for pair in self.by_flow if pair not in named)]

    def _unknown(self, item: Property, name: str) -> None:
        known = {
            *meanings.LINK,
            *meanings.CHECKED,
            *meanings.NO_MEANING,
            *(f"{alias}.bootstrap.servers" for alias in self.clusters),
            *(f"consumer.{one}" for one in (*meanings.CONSUMER, *meanings.CLIENT_NO_MEANING)),
            *(f"producer.{one}" for one in (*meanings.PRODUCER, *meanings.CLIENT_NO_MEANING)),
        }
        self._said.wrong(item, f"is no setting of MirrorMaker 2{_near(name, known)}")


def _is_torn(item: Property) -> bool:
    return item.name.endswith("->") or item.text.startswith("->")


def _near(word: str, known: Iterable[str]) -> str:
    near = get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f"; did you mean '{near[0]}'?" if near else ""
