"""Topic settings in ZooKeeper: /config/topics/<topic>, and /config/changes that tells brokers of a change.

Keeps the overrides of known topics, so that reading a topic's effective settings never waits. A stored
setting that this version does not know is left alone and has no effect.
(Kafka: `ZkConfigManager`, `ConfigRepository`.)
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping

from broker.clock import Clock
from broker.config import TOPIC_DEFINITIONS, BrokerConfig, ConfigError, TopicConfig
from broker.control import paths
from broker.control.nodes import (
    NodeFormatError,
    decode_config,
    decode_config_change,
    encode_config,
    encode_config_change,
)
from broker.control.zookeeper import ZooKeeper
from broker.control.zookeeper_types import (
    BadVersion,
    NodeExists,
    NoNode,
    SessionEvent,
    SessionExpired,
    ZooKeeperError,
)

_log = logging.getLogger("isthmus.broker")
_CHANGES_KEPT_MS = 15 * 60 * 1000
_TOPICS = "topics/"


class ConfigStore:
    """Start it with `start`; `on_change(callback)` runs the callback with the topic's name after a change."""

    def __init__(self, zookeeper: ZooKeeper, config: BrokerConfig, clock: Clock) -> None:
        self._clock = clock
        self._zookeeper = zookeeper
        self._config = config
        self._overrides: dict[str, dict[str, str]] = {}
        self._effective: dict[str, TopicConfig] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._seen = -1
        self._wake = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read nothing yet, but follow changes from now on."""
        self._seen = max((_number(name) for name in await self._changes()), default=-1)
        self._zookeeper.on_session(self._session_event)
        self._follower = asyncio.create_task(self._follow(), name="config changes")

    async def close(self) -> None:
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)

    def on_change(self, callback: Callable[[str], None]) -> None:
        self._listeners.append(callback)

    # -- reading

    def overrides(self, topic: str) -> Mapping[str, str]:
        """A topic's own settings as last read; none for a topic that was not loaded."""
        return self._overrides.get(topic, {})

    def effective(self, topic: str) -> TopicConfig:
        """A topic's settings over the broker's defaults, as last read."""
        known = self._effective.get(topic)
        if known is None:
            known = self._effective[topic] = self._resolve(topic, self.overrides(topic))
        return known

    async def load(self, topic: str) -> Mapping[str, str]:
        """Read a topic's own settings anew."""
        overrides, _ = await self._read(topic)
        self._keep(topic, overrides)
        return overrides

    async def load_missing(self, topics: Iterable[str]) -> None:
        """Read the settings of topics that are not known yet."""
        await asyncio.gather(*(self.load(topic) for topic in topics if topic not in self._overrides))

    def forget(self, topic: str) -> None:
        """A topic is gone."""
        self._overrides.pop(topic, None)
        self._effective.pop(topic, None)

    def _keep(self, topic: str, overrides: dict[str, str]) -> None:
        self._overrides[topic] = overrides
        self._effective[topic] = self._resolve(topic, overrides)

    def _resolve(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        effective = self._config.topic_defaults
        for name, text in overrides.items():
            if name not in TOPIC_DEFINITIONS:
                continue
            try:
                effective = effective.with_overrides({name: text})
            except ConfigError as error:
                _log.warning("topic %s: stored setting has no effect: %s", topic, error)
        return effective

    async def _read(self, topic: str) -> tuple[dict[str, str], int]:
        """A topic's own settings and their version, -1 when there are none."""
        node = await self._zookeeper.get(paths.topic_config(topic))
        if node is None:
            return {}, -1
        try:
            return decode_config(node.data), node.version
        except NodeFormatError as error:
            _log.error("settings of topic %s cannot be read and have no effect: %s", topic, error)
            return {}, node.version

    # -- writing

    async def change(self, topic: str, edit: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """Replace a topic's own settings by `edit(current)` and tell all brokers. `edit` may run again."""
        path = paths.topic_config(topic)
        while True:
            current, version = await self._read(topic)
            wanted = edit(dict(current))
            try:
                if version < 0:
                    await self._zookeeper.create(path, encode_config(wanted))
                else:
                    await self._zookeeper.set(path, encode_config(wanted), version)
            except (BadVersion, NodeExists, NoNode):
                continue  # somebody else wrote in between
            break
        await self.announce(_TOPICS + topic)
        self._keep(topic, wanted)
        self._tell(topic)

    async def announce(self, entity_path: str) -> None:
        await self._zookeeper.create_sequential(paths.CONFIG_CHANGE_PREFIX, encode_config_change(entity_path))

    # -- following

    def _session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.RENEWED:
            self._wake.set()

    async def _changes(self) -> list[str]:
        names = await self._zookeeper.children(paths.CONFIG_CHANGES, self._wake.set)
        return sorted((name for name in names if _number(name) >= 0), key=_number)

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                for name in await self._changes():
                    await self._apply(name)
            except SessionExpired:
                continue  # the next session wakes this again
            except ZooKeeperError:
                _log.exception("config changes cannot be read")

    async def _apply(self, name: str) -> None:
        number = _number(name)
        node = await self._zookeeper.get(f"{paths.CONFIG_CHANGES}/{name}")
        if node is None:
            return
        if number > self._seen:
            self._seen = number
            try:
                entity = decode_config_change(node.data)
            except NodeFormatError as error:
                _log.warning("config change %s is ignored: %s", name, error)
                return
            if entity.startswith(_TOPICS):
                topic = entity.removeprefix(_TOPICS)
                await self.load(topic)
                self._tell(topic)
        if self._clock.now_ms() - node.created_ms > _CHANGES_KEPT_MS:
            with contextlib.suppress(NoNode):  # another broker was quicker
                await self._zookeeper.delete(f"{paths.CONFIG_CHANGES}/{name}")

    def _tell(self, topic: str) -> None:
        for listener in self._listeners:
            listener(topic)


def _number(name: str) -> int:
    """Number of a change node, -1 for another node."""
    _, _, digits = name.rpartition("_")
    return int(digits) if digits.isdigit() else -1
