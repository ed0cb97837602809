"""Features of the whole cluster that operators switch on: /feature in ZooKeeper (KIP-584, KIP-1022).

A level is finalized once for all brokers, and clients read it in ApiVersions. A cluster that is made by this
version starts with the newest levels; one that is older has no node and stays at level 0 until
`kafka-features.sh upgrade`: its brokers are replaced one by one. Must not know what a feature does.
(Kafka: FeatureZNode, FinalizedFeatureCache, FeatureControlManager.)
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from broker.control import paths
from broker.control.nodes import BrokerNode, NodeFormatError
from broker.control.zookeeper import ZooKeeper
from broker.control.zookeeper_types import (
    BadVersion,
    NodeExists,
    SessionEvent,
    SessionExpired,
    ZooKeeperError,
)

_log = logging.getLogger("isthmus.broker")

TRANSACTION_VERSION: Final = "transaction.version"
_ENABLED: Final = 1
_WRITTEN: Final = 2
_RETRY_S: Final = 1.0


class Range(NamedTuple):
    """Levels of a feature that this broker can work with."""

    low: int
    high: int


SUPPORTED: Final[Mapping[str, Range]] = MappingProxyType({TRANSACTION_VERSION: Range(0, 2)})
INITIAL: Final[Mapping[str, int]] = MappingProxyType({TRANSACTION_VERSION: 2})
"""Levels of a cluster that is made by this version."""


@dataclass(frozen=True, slots=True)
class Finalized:
    """Levels above 0; `epoch` grows with each change, -1 where there has never been one."""

    levels: Mapping[str, int]
    epoch: int = -1

    def level(self, feature: str) -> int:
        return self.levels.get(feature, 0)


def encode(levels: Mapping[str, int]) -> bytes:
    """What /feature holds (version 2, Kafka 3.3 and later)."""
    features = {name: {"max_version_level": level} for name, level in sorted(levels.items()) if level > 0}
    node = {"version": _WRITTEN, "status": _ENABLED, "features": features}
    return json.dumps(node, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[str, int]:
    """Levels by feature, none where the node says that features are disabled. Raises NodeFormatError."""
    try:
        node: Any = json.loads(data)
        if node["version"] not in (1, _WRITTEN):
            raise NodeFormatError(f"features: version {node['version']} is not known")
        if node["status"] != _ENABLED:
            return {}
        return {str(name): int(levels["max_version_level"]) for name, levels in node["features"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NodeFormatError(f"features: {error!r} in {data[:200]!r}") from error


async def make_initial(zookeeper: ZooKeeper) -> None:
    """To be called before a new cluster gets its id: whoever is first decides its levels."""
    try:
        await zookeeper.create(paths.FEATURES, encode(INITIAL))
    except NodeExists:
        return


class FeatureStore:
    """Keeps `finalized` up to date. Start it with `start`."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self.finalized = Finalized({})
        self._zookeeper = zookeeper
        self._wake = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._read()
        self._zookeeper.on_session(self._session_event)
        self._follower = asyncio.create_task(self._follow(), name="features")

    async def close(self) -> None:
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)

    def _session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.RENEWED:
            self._wake.set()

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._read()
            except SessionExpired:
                continue  # the next session wakes us again
            except ZooKeeperError as error:
                _log.warning("features cannot be read, it is tried again: %s", error)
                await asyncio.sleep(_RETRY_S)
                self._wake.set()

    async def _read(self) -> None:
        await self._zookeeper.exists(paths.FEATURES, self._wake.set)
        node = await self._zookeeper.get(paths.FEATURES)
        if node is None:
            self._take(Finalized({}))
            return
        try:
            self._take(Finalized(decode(node.data), node.version))
        except NodeFormatError as error:
            _log.error("%s: its levels are left as they were: %s", paths.FEATURES, error)

    def _take(self, finalized: Finalized) -> None:
        for name, level in finalized.levels.items():
            known = SUPPORTED.get(name)
            if known is None or not known.low <= level <= known.high:
                _log.error("feature %s is finalized at level %d, which this version cannot do", name, level)
        if finalized.levels != self.finalized.levels:
            _log.info("finalized features: %s", dict(finalized.levels) or "none")
        self.finalized = finalized

    async def brokers_without(self, feature: str, level: int) -> list[int]:
        """Brokers of the cluster, as they are registered now, that cannot do this level."""
        found = []
        for name in await self._zookeeper.children(paths.BROKER_IDS):
            node = await self._zookeeper.get(f"{paths.BROKER_IDS}/{name}")
            if node is not None:
                low, high = BrokerNode.decode(node.data).features.get(feature, (0, 0))
                if not low <= level <= high:
                    found.append(int(name))
        return sorted(found)

    async def change(self, edit: Callable[[Mapping[str, int]], Mapping[str, int]]) -> None:
        """Finalize the levels that `edit` makes of the present ones. Raises what `edit` raises."""
        while True:
            node = await self._zookeeper.get(paths.FEATURES)
            present = {} if node is None else decode(node.data)
            wanted = encode(edit(present))
            try:
                if node is None:
                    await self._zookeeper.create(paths.FEATURES, wanted)
                elif decode(wanted) != present:
                    await self._zookeeper.set(paths.FEATURES, wanted, node.version)
            except (BadVersion, NodeExists):
                continue  # somebody else was first
            await self._read()
            return
