"""MirrorMaker 2's connectors, as a Connect cluster runs them, become links: one for each source connector.

Owns which of the three connectors a setting counts in, and which lines of connect-mirror-maker.properties say
the same: what they mean is `levels`' and `file`'s to say. Where they come from is not known here (`strimzi`,
`connector_files`). A connector that is not there does nothing: without a MirrorCheckpointConnector no
positions are translated, without a MirrorHeartbeatConnector no heartbeats written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from protocol.properties_text import Property
from replicator.mirrormaker import meanings
from replicator.mirrormaker.file import links_of
from replicator.mirrormaker.levels import Levels
from replicator.mirrormaker.providers import Provider
from replicator.mirrormaker.remarks import Remarks
from replicator.settings import LinkSettings, is_alias

SOURCE: Final = "MirrorSourceConnector"
CHECKPOINT: Final = "MirrorCheckpointConnector"
HEARTBEAT: Final = "MirrorHeartbeatConnector"

_OWN: Final[Mapping[str, tuple[str, ...]]] = {
    CHECKPOINT: (
        "groups",
        "groups.exclude",
        "groups.blacklist",
        "group.filter.class",
        "refresh.groups.enabled",
        "refresh.groups.interval.seconds",
        "emit.checkpoints.enabled",
        "emit.checkpoints.interval.seconds",
        "sync.group.offsets.enabled",
        "sync.group.offsets.interval.seconds",
        "checkpoints.topic.replication.factor",
    ),
    HEARTBEAT: (
        "emit.heartbeats.enabled",
        "emit.heartbeats.interval.seconds",
        "heartbeats.topic.replication.factor",
    ),
}
"""Settings that count in this connector alone (Kafka: MirrorCheckpointConfig, MirrorHeartbeatConfig)."""

_WITHOUT: Final[Mapping[str, tuple[str, ...]]] = {
    CHECKPOINT: ("emit.checkpoints.enabled", "sync.group.offsets.enabled"),
    HEARTBEAT: ("emit.heartbeats.enabled",),
}
"""What is switched off where that connector is not there."""

_OF_EACH: Final = (
    "name",
    "connector.class",
    "source.cluster.alias",
    "target.cluster.alias",
    "tasks.max",
    "enabled",
)
"""Settings that may differ between the connectors of a link."""

OF_THE_WORKER: Final = (
    *(name for name in meanings.TAKE_OVER if name not in ("name", "offsets.storage.topic")),
    *meanings.OF_THE_WORKER,
)
"""Settings of Connect's worker that a link needs; those of `config.providers` besides."""


@dataclass(frozen=True, slots=True)
class Connector:
    """As it is posted to Connect."""

    kind: str
    name: Property
    """Its text is the connector's name."""
    config: Mapping[str, Property]

    @property
    def ends(self) -> tuple[str, str]:
        """Aliases of source and target; MirrorMaker 2 has a default for the target's only."""
        return tuple(  # type: ignore[return-value]  # two
            self.config[name].text.strip() if name in self.config else other
            for name, other in (("source.cluster.alias", ""), ("target.cluster.alias", "target"))
        )


@dataclass(frozen=True, slots=True)
class Worker:
    """What runs the connectors, by settings of its file."""

    settings: Mapping[str, Property] = field(default_factory=dict)
    how: str = ""
    """How to say what is missing."""


def links_of_connectors(
    connectors: Iterable[Connector], worker: Worker, said: Remarks, more: Mapping[str, Provider]
) -> list[LinkSettings]:
    """`more`: config providers that the worker knows besides Kafka's. What is wrong is said to `said`."""
    by_ends: dict[tuple[str, str], list[Connector]] = {}
    for connector in connectors:
        if connector.ends[0]:
            by_ends.setdefault(connector.ends, []).append(connector)
        else:
            said.wrong(connector.name, "has no source.cluster.alias, which MirrorMaker 2 asks for too")
    made: list[LinkSettings] = []
    for (source, target), found in by_ends.items():
        by_kind: dict[str, Connector] = {}
        for connector in found:
            before = by_kind.setdefault(connector.kind, connector)
            if before is not connector:
                said.wrong(
                    connector.name,
                    f"is a second {connector.kind} of {source}->{target}, beside {before.name.text}: a link"
                    " is one of them, with the topics of all",
                )
        if SOURCE in by_kind:
            lines = _Lines(by_kind, worker, said, more).lines()
            made += links_of(lines, said, more) if lines else []
        else:
            text = f"there is no {SOURCE} of {source}->{target} in the file"
            others = [
                f"{'->'.join(one.ends)} ({one.name.text})"
                for several in by_ends.values()
                for one in several
                if one.kind == SOURCE
            ]
            _without_source(by_kind, text + (f", only of {', '.join(others)}" if others else ""), said)
    if not made and not said.problems:
        said.missing(SOURCE, "there is none in the file, and nothing else copies records")
    return made


def _without_source(by_kind: Mapping[str, Connector], text: str, said: Remarks) -> None:
    """Heartbeats alone are usual: they go into a source, so that others copy them from there."""
    if CHECKPOINT in by_kind:
        said.wrong(by_kind[CHECKPOINT].name, f"{text}: add it, for both are one link")
    else:
        said.note(by_kind[HEARTBEAT].name, f"{text}: no link writes these heartbeats")


class _Lines:
    """Of one link."""

    def __init__(
        self,
        by_kind: Mapping[str, Connector],
        worker: Worker,
        said: Remarks,
        more: Mapping[str, Provider],
    ) -> None:
        self._by_kind = by_kind
        self._main = by_kind[SOURCE]
        self._worker = worker
        self._said = said
        self._more = more
        self._source, self._target = self._main.ends
        self._flow = f"{self._source}->{self._target}."
        config = self._main.config
        alias = config["source.cluster.alias"]
        if is_alias(self._source) and "target.cluster.alias" in config:
            alias = config["target.cluster.alias"]
        self._head = [
            replace(
                alias,
                name="clusters",
                text=f"{self._source}, {self._target}",
                place=alias.place or alias.name,
            ),
            *(one for name, one in worker.settings.items() if name.startswith("config.providers")),
        ]

    def lines(self) -> list[Property]:
        """Nothing where something is missing without which the rest cannot be judged; that was said."""
        main = self._main
        missing = [
            end for end in ("source", "target") if f"{end}.cluster.bootstrap.servers" not in main.config
        ]
        for end in missing:
            self._said.wrong(main.name, f"has no {end}.cluster.bootstrap.servers")
        needed = (
            ["group.id"] if "offsets.storage.topic" in main.config else ["offset.storage.topic", "group.id"]
        )
        absent = [name for name in needed if name not in self._worker.settings]
        if absent:
            self._said.missing(
                ", ".join(absent),
                "is not known, and is the Connect worker's: without, the link would not find how far"
                f" {main.name.text} has copied, and would copy all of it again. {self._worker.how}",
            )
        if missing:
            return []
        made = [
            *self._head,
            self._in_flow("name", main.name),
            self._in_flow("enabled", main.config.get("enabled") or replace(main.name, text="true")),
        ]
        made += [
            replace(item, name=f"{self._target}.{name}")
            for name, item in self._worker.settings.items()
            if not name.startswith("config.providers")
        ]
        for name, item in main.config.items():
            if name not in _OF_EACH or name == "tasks.max":
                made += self._of_source(name, item)
        for kind in (CHECKPOINT, HEARTBEAT):
            made += self._of_other(kind)
        return made

    def _in_flow(self, name: str, item: Property) -> Property:
        return replace(item, name=self._flow + name, place=item.place or item.name)

    def _of_source(self, name: str, item: Property) -> list[Property]:
        owner = next((kind for kind, names in _OWN.items() if name in names), None)
        if owner is None:
            return [self._in_flow(name, item)]
        other = self._by_kind.get(owner)
        if other is None or not _same(other.config.get(name), item):
            self._said.note(item, f"has no effect in a {SOURCE}: it counts in a {owner}")
        return []

    def _of_other(self, kind: str) -> list[Property]:
        """What counts of that connector."""
        connector = self._by_kind.get(kind)
        enabled = connector.config.get("enabled") if connector is not None else None
        if connector is None or (enabled is not None and enabled.text.strip().lower() == "false"):
            if kind == CHECKPOINT and connector is None:
                self._said.note(
                    self._main.name,
                    f"there is no {kind} of {self._flow[:-1]} in the file: positions of groups are not"
                    " translated",
                )
            return [self._in_flow(name, replace(self._main.name, text="false")) for name in _WITHOUT[kind]]
        made: list[Property] = []
        others: list[Property] = []
        for name, item in connector.config.items():
            if name in _OWN[kind]:
                made.append(self._in_flow(name, item))
            elif name not in _OF_EACH and not _same(self._main.config.get(name), item):
                others.append(self._in_flow(name, item))
        self._without_effect(kind, others)
        return made

    def _without_effect(self, kind: str, lines: list[Property]) -> None:
        """What stands in another connector and is not as in the source connector: by its meaning there."""
        levels = Levels([*self._head, *lines], self._said, self._more)
        scope = levels.by_flow.get((self._source, self._target))
        for item in (*scope.link.values(), *scope.client.values(), *scope.end.values()) if scope else ():
            self._said.note(
                item,
                f"has no effect here: a link does everything as its {SOURCE} says, also the {kind}'s part",
            )


def _same(here: Property | None, there: Property) -> bool:
    return here is not None and here.text.strip() == there.text.strip()
