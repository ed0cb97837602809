"""Making, growing, deleting and configuring topics, for handlers and coordinators of any broker.

What is asked for is checked, written to ZooKeeper, and done by the controller, which watches. Calls return
when this broker's metadata shows the result or `wait_s` has passed: a topic without leaders is still created.
Must not know requests. (Kafka: `ZkAdminManager`, `AutoTopicCreationManager`.)
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from broker.config import BrokerConfig, TopicConfig
from broker.control import paths
from broker.control.assignment import Candidate
from broker.control.config_store import ConfigStore
from broker.control.internal_topics import internal_topic
from broker.control.metadata_cache import MetadataCache
from broker.control.nodes import TopicNode, encode_config
from broker.control.over_sessions import over_sessions
from broker.control.topic_plan import (
    Assignment,
    Wanted,
    check_configs,
    check_name,
    plan_assignment,
    plan_growth,
    refuse_internal,
)
from broker.control.topic_rules import is_internal
from broker.control.zookeeper import ZooKeeper
from broker.control.zookeeper_types import BadVersion, Create, NodeExists, NoNode, Operation, Set
from broker.log import LogConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.types import new_topic_id

T = TypeVar("T")

DEFAULT_WAIT_S = 10.0
_AUTO_CREATE_WAIT_S = 2.0


class Created(NamedTuple):
    """`ready`: this broker's metadata shows a leader for every partition."""

    topic_id: bytes
    assignment: Assignment
    ready: bool = False


class TopicAdmin:
    """`metadata` tells who is alive and when the controller has done its part."""

    def __init__(
        self, zookeeper: ZooKeeper, config: BrokerConfig, configs: ConfigStore, metadata: MetadataCache
    ) -> None:
        self.configs = configs
        self._zookeeper = zookeeper
        self._config = config
        self._metadata = metadata
        self._creating: dict[str, asyncio.Task[None]] = {}
        self._log_configs: dict[str, tuple[TopicConfig, LogConfig]] = {}

    # -- settings

    def topic_config(self, topic: str) -> LogConfig:
        """Effective settings of a topic, as the log wants them; never waits."""
        effective = self.configs.effective(topic)
        known = self._log_configs.get(topic)
        if known is None or known[0] is not effective:  # partitions by the thousand ask for the same
            values = dataclasses.asdict(effective)
            values["cleanup_policy"] = ",".join(values["cleanup_policy"])
            settings = {name.replace("_", "."): value for name, value in values.items()}
            known = self._log_configs[topic] = (effective, LogConfig.from_settings(settings))
        return known[1]

    def forget(self, topic: str) -> None:
        """A topic is gone; nothing that was worked out for it stays."""
        self.configs.forget(topic)
        self._log_configs.pop(topic, None)

    async def change_configs(
        self, topic: str, edit: Callable[[dict[str, str]], dict[str, str]], *, validate_only: bool = False
    ) -> None:
        """Replace a topic's own settings by `edit(current)`, once that is found right. Raises KafkaError."""
        what = f"settings of topic {topic!r}"
        if not await self._over(lambda: self._zookeeper.exists(paths.topic(topic)), what):
            raise _unknown(topic)

        def checked(current: dict[str, str]) -> dict[str, str]:
            wanted = edit(current)
            check_configs(topic, self._config, wanted)
            return wanted

        if validate_only:
            checked(dict(await self._over(lambda: self.configs.load(topic), what)))
        else:
            await self._over(lambda: self.configs.change(topic, checked), what)

    # -- creating

    async def create(
        self, wanted: Wanted, *, validate_only: bool = False, wait_s: float = DEFAULT_WAIT_S
    ) -> Created:
        """Make a topic that is not the broker's own. Raises KafkaError."""
        refuse_internal(wanted.name)
        return await self._create(wanted, validate_only, wait_s)

    async def auto_create(self, name: str, *, wait_s: float = _AUTO_CREATE_WAIT_S) -> None:
        """Make a topic with the broker's defaults because somebody asked for it. Raises KafkaError."""
        if is_internal(name):
            await self.ensure_internal_topic(name, wait_s=wait_s)
        else:
            await self._ensure(Wanted(name), wait_s)

    async def ensure_internal_topic(self, name: str, *, wait_s: float = DEFAULT_WAIT_S) -> None:
        """Make one of the broker's own topics where it is missing. Raises KafkaError."""
        await self._ensure(internal_topic(name, self._config), wait_s)

    async def _ensure(self, wanted: Wanted, wait_s: float) -> None:
        """Make a topic unless it exists; those who ask at the same time share one try."""
        if self._metadata.topic(wanted.name) is not None:
            return
        task = self._creating.get(wanted.name)
        if task is None:
            task = asyncio.create_task(self._try(wanted, wait_s), name=f"create topic {wanted.name}")
            self._creating[wanted.name] = task
            task.add_done_callback(lambda _: self._creating.pop(wanted.name, None))
        await asyncio.shield(task)

    async def _try(self, wanted: Wanted, wait_s: float) -> None:
        try:
            await self._create(wanted, False, wait_s)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            await self._metadata.wait_until(lambda: self._has_leaders(wanted.name, 1), wait_s)

    async def _create(self, wanted: Wanted, validate_only: bool, wait_s: float) -> Created:
        what = f"topic {wanted.name!r}"
        existing = await self._over(lambda: self._zookeeper.children(paths.TOPICS), what)
        check_name(wanted.name, existing)
        check_configs(wanted.name, self._config, wanted.configs)
        created = Created(new_topic_id(), plan_assignment(wanted, self._config, self._alive()))
        if validate_only:
            return created
        await self._over(lambda: self._write(wanted, created), what)
        count = len(created.assignment)
        ready = await self._metadata.wait_until(lambda: self._has_leaders(wanted.name, count), wait_s)
        return created._replace(ready=ready)

    async def _write(self, wanted: Wanted, created: Created) -> None:
        """Topic and settings, both or none; done already by an attempt whose answer was lost is done."""
        settings = encode_config(wanted.configs)
        node = TopicNode(created.topic_id, created.assignment)
        create: list[Operation] = [Create(paths.topic(wanted.name), node.encode())]
        config_path = paths.topic_config(wanted.name)
        while True:
            left_over = await self._zookeeper.get(config_path)
            write: Operation = (
                Create(config_path, settings)
                if left_over is None
                else Set(config_path, settings, left_over.version)
            )
            try:
                await self._zookeeper.transaction([*create, write])
                return
            except (NodeExists, BadVersion, NoNode) as error:
                if error.path == config_path:
                    continue
                if await self._is_topic(wanted.name, created.topic_id):
                    return
                raise KafkaError(
                    ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {wanted.name!r} already exists"
                ) from None

    # -- growing and deleting

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
        *,
        wait_s: float = DEFAULT_WAIT_S,
    ) -> bool:
        """Grow a topic to `count` partitions; whether they have leaders yet. Raises KafkaError."""
        written: list[Assignment] = []

        async def grow() -> None:
            while True:
                stored = await self._zookeeper.get(paths.topic(name))
                if stored is None or await self._zookeeper.exists(paths.delete_topic(name)):
                    raise _unknown(name)
                node = TopicNode.decode(stored.data)
                if node.assignment in written:
                    return  # an attempt whose answer was lost had worked
                added = plan_growth(name, node.assignment, count, assignment, self._alive())
                if validate_only:
                    return
                grown = dataclasses.replace(node, assignment={**node.assignment, **added})
                written.append(grown.assignment)
                with contextlib.suppress(BadVersion):  # somebody else wrote it: look again
                    await self._zookeeper.set(paths.topic(name), grown.encode(), stored.version)
                    return

        await self._over(grow, f"partitions of topic {name!r}")
        if validate_only:
            return True
        return await self._metadata.wait_until(lambda: self._has_leaders(name, count), wait_s)

    async def delete_topic(self, name: str, *, wait_s: float = DEFAULT_WAIT_S) -> bool:
        """Delete a topic with its data and settings; whether it is gone yet. Raises KafkaError."""
        if not self._config.delete_topic_enable:
            raise KafkaError(
                ErrorCode.TOPIC_DELETION_DISABLED, f"topic {name!r}: delete.topic.enable is false"
            )
        refuse_internal(name)
        what = f"deletion of topic {name!r}"
        asked: list[bytes] = []

        async def ask() -> bytes:
            stored = await self._zookeeper.get(paths.topic(name))
            if stored is None and not asked:
                raise _unknown(name)
            if stored is not None and not asked:
                asked.append(TopicNode.decode(stored.data).topic_id)
            if stored is not None and TopicNode.decode(stored.data).topic_id == asked[0]:
                with contextlib.suppress(NodeExists):  # asked for before, and under way
                    await self._zookeeper.create(paths.delete_topic(name))
            return asked[0]

        topic_id = await self._over(ask, what)
        try:
            async with asyncio.timeout(wait_s):
                await self._metadata.wait_until(lambda: self._metadata.topic_id(name) != topic_id, wait_s)
                await self._over(lambda: self._gone(paths.delete_topic(name)), what, wait_s)
        except TimeoutError:
            return False
        return True

    async def _gone(self, path: str) -> None:
        """Until the node is gone: then the name is free again.

        Not `exists`, whose watch on a missing node would be kept for ever, one for each topic ever deleted.
        """
        changed = asyncio.Event()
        while await self._zookeeper.get(path, changed.set) is not None:
            await changed.wait()
            changed.clear()

    # -- plumbing

    async def _over(self, attempt: Callable[[], Awaitable[T]], what: str, wait_s: float = 0.0) -> T:
        return await over_sessions(self._zookeeper, attempt, max(wait_s, DEFAULT_WAIT_S), what)

    async def _is_topic(self, name: str, topic_id: bytes) -> bool:
        stored = await self._zookeeper.get(paths.topic(name))
        return stored is not None and TopicNode.decode(stored.data).topic_id == topic_id

    def _alive(self) -> list[Candidate]:
        return [Candidate(info.broker_id, info.rack) for info in self._metadata.brokers.values()]

    def _has_leaders(self, name: str, count: int) -> bool:
        topic = self._metadata.topic(name)
        if topic is None or len(topic.partitions) < count:
            return False
        return all(info.leader >= 0 for info in topic.partitions.values())


def _unknown(name: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
