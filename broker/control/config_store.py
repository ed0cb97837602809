"""Settings in ZooKeeper: /config/topics, /config/brokers, and /config/changes that tells brokers of a change.

Keeps the overrides of known topics and the dynamic settings of this broker, so that reading what is in force
never waits. Settings of other kinds (users) it reads, writes and tells of, and knows nothing more of them.
A stored setting that this version does not know is left alone and has no effect.
(Kafka: `ZkConfigManager`, `ConfigRepository`.)
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from broker.clock import Clock
from broker.config import TOPIC_DEFINITIONS, BrokerConfig, ConfigError, TopicConfig, dynamic
from broker.config.dynamic import DynamicSettings
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
_BROKERS = "brokers/"
DEFAULT_BROKER = "<default>"
"""Name of the settings that hold for all brokers."""
_NOTHING_IS_REMOVED = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""For a topic whose settings cannot be read: they may have said so, and defaults would delete its records."""


class ConfigStore:
    """Start it with `start`. `on_change(callback)` runs the callback with the topic's name after a change,
    `on_broker_change` after one of the broker's own settings, which may be one for all topics.
    """

    def __init__(self, zookeeper: ZooKeeper, config: BrokerConfig, clock: Clock) -> None:
        self._clock = clock
        self._zookeeper = zookeeper
        self._config = config
        self._in_force = config
        self._stored = DynamicSettings()
        self._broker_listeners: list[Callable[[], None]] = []
        self._overrides: dict[str, dict[str, str]] = {}
        self._effective: dict[str, TopicConfig] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._entity_listeners: dict[str, Callable[[str], Awaitable[None]]] = {}
        self._seen = -1
        self._wake = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the broker's own settings, and follow all changes from now on."""
        self._seen = max((_number(name) for name in await self._changes()), default=-1)
        await self._load_broker()
        self._zookeeper.on_session(self._session_event)
        self._follower = asyncio.create_task(self._follow(), name="config changes")

    async def close(self) -> None:
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.gather(self._follower, return_exceptions=True)

    def on_change(self, callback: Callable[[str], None]) -> None:
        self._listeners.append(callback)

    def on_broker_change(self, callback: Callable[[], None]) -> None:
        self._broker_listeners.append(callback)

    # -- reading

    @property
    def in_force(self) -> BrokerConfig:
        """The broker's settings: those of its start, and on top what was changed since."""
        return self._in_force

    @property
    def stored(self) -> DynamicSettings:
        """What was changed while brokers ran."""
        return self._stored

    async def _load_broker(self) -> None:
        own = await self._read_broker(str(self._config.broker_id))
        default = await self._read_broker(DEFAULT_BROKER)
        self._stored = DynamicSettings(own, default)
        self._in_force = dynamic.in_force(self._config, self._stored)
        self._effective.clear()

    async def _read_broker(self, name: str) -> dict[str, str]:
        """Those that can be used; the others are said aloud, once for each reading."""
        texts, _ = await self._read(paths.broker_config(name))
        usable = {}
        for setting, text in texts.items():
            try:
                dynamic.check({setting: text})
                usable[setting] = text
            except (ConfigError, dynamic.NotDynamic) as error:
                _log.warning("broker %s: stored setting has no effect: %s", name, error)
        return usable

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
        """Read a topic's own settings anew. Unreadable ones stay as known before, else nothing is removed."""
        path = paths.topic_config(topic)
        node = await self._zookeeper.get(path)
        try:
            overrides = {} if node is None else decode_config(node.data)
        except NodeFormatError as error:
            known = self._overrides.get(topic)
            overrides = _NOTHING_IS_REMOVED if known is None else known
            _log.error(
                "settings of topic %s cannot be read in %s (%s): %s; write the topic's settings anew, for "
                "example with `kafka-configs --alter`",
                topic,
                path,
                error,
                "none of its records are removed meanwhile" if known is None else "the ones before stay",
            )
        self._keep(topic, dict(overrides))
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
        effective = self._in_force.topic_defaults
        for name, text in overrides.items():
            if name not in TOPIC_DEFINITIONS:
                continue
            try:
                effective = effective.with_overrides({name: text})
            except ConfigError as error:
                _log.warning("topic %s: stored setting has no effect: %s", topic, error)
        return effective

    async def _read(self, path: str) -> tuple[dict[str, str], int]:
        """The settings of a node and their version, -1 when there is none."""
        node = await self._zookeeper.get(path)
        if node is None:
            return {}, -1
        try:
            return decode_config(node.data), node.version
        except NodeFormatError as error:
            _log.error("settings in %s cannot be read and have no effect: %s", path, error)
            return {}, node.version

    # -- writing

    async def change(self, topic: str, edit: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """Replace a topic's own settings by `edit(current)` and tell all brokers. `edit` may run again."""
        wanted = await self._write(paths.topic_config(topic), edit)
        await self.announce(_TOPICS + topic)
        self._keep(topic, wanted)
        self._tell(topic)

    async def change_broker(self, name: str, edit: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """The same for one broker's dynamic settings, or with `DEFAULT_BROKER` for all brokers."""
        await self._write(paths.broker_config(name), edit)
        await self.announce(_BROKERS + name)
        await self._broker_changed(name)

    async def broker_overrides(self, name: str) -> dict[str, str]:
        """Dynamic settings as they are stored now."""
        texts, _ = await self._read(paths.broker_config(name))
        return texts

    async def _write(self, path: str, edit: Callable[[dict[str, str]], dict[str, str]]) -> dict[str, str]:
        while True:
            current, version = await self._read(path)
            wanted = edit(dict(current))
            try:
                if version < 0:
                    await self._zookeeper.create(path, encode_config(wanted))
                else:
                    await self._zookeeper.set(path, encode_config(wanted), version)
            except (BadVersion, NodeExists, NoNode):
                continue  # somebody else wrote in between
            return wanted

    # -- other kinds

    async def entity_names(self, kind: str) -> list[str]:
        """Names of all nodes of a kind, for example of `users`."""
        return await self._zookeeper.children(paths.config_kind(kind))

    async def entity(self, kind: str, name: str) -> dict[str, str]:
        """The settings as they are stored now."""
        texts, _ = await self._read(paths.entity_config(kind, name))
        return texts

    async def change_entity(
        self, kind: str, name: str, edit: Callable[[dict[str, str]], dict[str, str]]
    ) -> None:
        """Replace the settings by `edit(current)` and tell all brokers. `edit` may run again."""
        await self._write(paths.entity_config(kind, name), edit)
        await self.announce(f"{kind}/{name}")

    def on_entity_change(self, kind: str, follow: Callable[[str], Awaitable[None]]) -> None:
        """`follow` gets the rest of the entity's path after a change, by whatever broker."""
        self._entity_listeners[kind] = follow

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
            elif entity.startswith(_BROKERS):
                await self._broker_changed(entity.removeprefix(_BROKERS))
            else:
                kind, _, rest = entity.partition("/")
                if kind in self._entity_listeners:
                    await self._entity_listeners[kind](rest)
        if self._clock.now_ms() - node.created_ms > _CHANGES_KEPT_MS:
            with contextlib.suppress(NoNode):  # another broker was quicker
                await self._zookeeper.delete(f"{paths.CONFIG_CHANGES}/{name}")

    async def _broker_changed(self, name: str) -> None:
        if name in (DEFAULT_BROKER, str(self._config.broker_id)):
            await self._load_broker()
            for listener in self._broker_listeners:
                listener()

    def _tell(self, topic: str) -> None:
        for listener in self._listeners:
            listener(topic)


def _number(name: str) -> int:
    """Number of a change node, -1 for another node."""
    _, _, digits = name.rpartition("_")
    return int(digits) if digits.isdigit() else -1
