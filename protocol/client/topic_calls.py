"""Topics and settings: create, delete, grow, describe, alter.

Owns the administrative requests that go to the controller or, for settings of a broker, to that broker.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeVar

from protocol.client.errors import ClientError, ConnectError
from protocol.client.failures import each, failure
from protocol.client.retry import RetryPolicy
from protocol.client.routing import Router
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.types import ZERO_UUID

V = TypeVar("V")

_SET, _DELETE = 0, 1


class ConfigKind(IntEnum):
    TOPIC = 2
    BROKER = 4


class ConfigSource(IntEnum):
    """Where a setting's value comes from (Kafka's DescribeConfigsResponse.ConfigSource)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class NewTopic:
    """-1 means the cluster's default. `assignment` (partition -> brokers) stands instead of both numbers."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """`value` is None for secrets and for settings without a value."""

    value: str | None
    source: ConfigSource
    read_only: bool
    is_sensitive: bool


class TopicCalls(Router):
    """Part of `ClusterClient`."""

    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        timeout_ms: int = 30_000,
        validate_only: bool = False,
        retry: RetryPolicy | None = None,
    ) -> dict[str, bytes]:
        """Topic ids by name, zero if the cluster does not tell. Raises `KafkaError` naming a refused topic.

        A topic that exists although an earlier attempt, whose outcome is not known, was ours counts as made.
        """

        async def call(part: dict[str, NewTopic]) -> dict[str, bytes | KafkaError]:
            answer = await self.send_controller(
                CreateTopicsRequest(
                    topics=[_creatable(topic) for topic in part.values()],
                    timeout_ms=timeout_ms,
                    validate_only=validate_only,
                ),
                timeout_s=self.timeout_s + timeout_ms / 1000,
            )
            return {
                row.name: failure(row.error_code, f"topic {row.name}", row.error_message)
                if row.error_code
                else row.topic_id
                for row in answer.topics
            }

        wanted = {topic.name: topic for topic in topics}
        made = await self._at_controller(wanted, call, ErrorCode.TOPIC_ALREADY_EXISTS, retry)
        for name in wanted:
            self.forget_topic(name)
        return {name: made.get(name, ZERO_UUID) for name in wanted}

    async def delete_topics(
        self, names: Collection[str], *, timeout_ms: int = 30_000, retry: RetryPolicy | None = None
    ) -> None:
        """Raises `KafkaError` naming a topic that was not deleted."""

        async def call(part: dict[str, None]) -> dict[str, bytes | KafkaError]:
            answer = await self.send_controller(
                DeleteTopicsRequest(
                    topics=[DeleteTopicState(name=name) for name in part],
                    timeout_ms=timeout_ms,
                ),
                timeout_s=self.timeout_s + timeout_ms / 1000,
            )
            return {
                row.name or "": failure(row.error_code, f"topic {row.name}", row.error_message)
                if row.error_code
                else row.topic_id
                for row in answer.responses
            }

        await self._at_controller(dict.fromkeys(names), call, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, retry)
        for name in names:
            self.forget_topic(name)

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        timeout_ms: int = 30_000,
        validate_only: bool = False,
        retry: RetryPolicy | None = None,
    ) -> None:
        """Grows topics to so many partitions in all; `assignments` has the brokers of each new partition."""

        async def call(part: dict[str, int]) -> dict[str, bool | KafkaError]:
            answer = await self.send_controller(
                CreatePartitionsRequest(
                    topics=[
                        CreatePartitionsTopic(
                            name=name,
                            count=count,
                            assignments=_assigned((assignments or {}).get(name)),
                        )
                        for name, count in part.items()
                    ],
                    timeout_ms=timeout_ms,
                    validate_only=validate_only,
                ),
                timeout_s=self.timeout_s + timeout_ms / 1000,
            )
            return {
                row.name: failure(row.error_code, f"topic {row.name}", row.error_message)
                if row.error_code
                else True
                for row in answer.results
            }

        await self._at_controller(counts, call, None, retry)
        for name in counts:
            self.forget_topic(name)

    async def describe_configs(
        self,
        names: Collection[str],
        kind: ConfigKind = ConfigKind.TOPIC,
        *,
        keys: Collection[str] | None = None,
        retry: RetryPolicy | None = None,
    ) -> dict[str, dict[str, ConfigEntry]]:
        """Settings (all, or just `keys`) of topics, or of brokers by number."""

        async def call(part: dict[str, None]) -> dict[str, dict[str, ConfigEntry] | BaseException]:
            found: dict[str, dict[str, ConfigEntry] | BaseException] = {}
            for group in self._config_groups(part, kind):
                request = DescribeConfigsRequest(
                    resources=[
                        DescribeConfigsResource(
                            resource_type=kind,
                            resource_name=name,
                            configuration_keys=None if keys is None else list(keys),
                        )
                        for name in group
                    ]
                )
                answer = await self._send_config(request, kind, group)
                for row in answer.results:
                    where = f"settings of {kind.name.lower()} {row.resource_name}"
                    found[row.resource_name] = (
                        failure(row.error_code, where, row.error_message)
                        if row.error_code
                        else {
                            entry.name: ConfigEntry(
                                entry.value,
                                _source(entry.config_source),
                                entry.read_only,
                                entry.is_sensitive,
                            )
                            for entry in row.configs
                        }
                    )
            return found

        return await each(dict.fromkeys(names), call, retry or self.retry)

    async def alter_configs(
        self,
        changes: Mapping[str, Mapping[str, str | None]],
        kind: ConfigKind = ConfigKind.TOPIC,
        *,
        validate_only: bool = False,
        retry: RetryPolicy | None = None,
    ) -> None:
        """Sets some settings and leaves the others (KIP-339); None takes a setting back to its default."""

        async def call(part: dict[str, Mapping[str, str | None]]) -> dict[str, bool | BaseException]:
            done: dict[str, bool | BaseException] = {}
            for group in self._config_groups(part, kind):
                request = IncrementalAlterConfigsRequest(
                    resources=[
                        AlterConfigsResource(
                            resource_type=kind,
                            resource_name=name,
                            configs=[
                                AlterableConfig(
                                    name=key, config_operation=_DELETE if value is None else _SET, value=value
                                )
                                for key, value in part[name].items()
                            ],
                        )
                        for name in group
                    ],
                    validate_only=validate_only,
                )
                answer = await self._send_config(request, kind, group)
                for row in answer.responses:
                    where = f"settings of {kind.name.lower()} {row.resource_name}"
                    done[row.resource_name] = (
                        failure(row.error_code, where, row.error_message) if row.error_code else True
                    )
            return done

        await each(changes, call, retry or self.retry)

    def _config_groups(self, names: Iterable[str], kind: ConfigKind) -> list[list[str]]:
        """Each broker answers for its own settings, any broker for those of topics."""
        return [[name] for name in names] if kind is ConfigKind.BROKER else [list(names)]

    async def _send_config(self, request: Any, kind: ConfigKind, names: list[str]) -> Any:
        if kind is ConfigKind.BROKER and names[0]:
            return await self.send_to(int(names[0]), request)
        return await self.send_any(request)

    async def _at_controller(
        self,
        items: Mapping[str, Any],
        call: Callable[[dict[str, Any]], Awaitable[Mapping[str, V | KafkaError]]],
        done_already: ErrorCode | None,
        retry: RetryPolicy | None,
    ) -> dict[str, V]:
        """`call` at the controller, again where that may help. Once the outcome of an attempt is not known,
        `done_already` means that it had worked."""
        in_doubt = False

        async def attempt(part: dict[str, Any]) -> Mapping[str, V | BaseException | None]:
            nonlocal in_doubt
            try:
                results: dict[str, V | BaseException | None] = dict(await call(part))
            except ClientError as error:
                in_doubt = in_doubt or not isinstance(error, ConnectError)
                raise
            for name, result in list(results.items()):
                if not isinstance(result, KafkaError):
                    continue
                if result.code == ErrorCode.NOT_CONTROLLER:
                    self.forget_controller()
                if in_doubt and result.code == done_already:
                    results[name] = None
            in_doubt = in_doubt or any(
                isinstance(result, KafkaError) and result.code == ErrorCode.REQUEST_TIMED_OUT
                for result in results.values()
            )
            return results

        return await each(items, attempt, retry or self.retry)


def _creatable(topic: NewTopic) -> CreatableTopic:
    assigned = topic.assignment is not None
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assigned else topic.partitions,
        replication_factor=-1 if assigned else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in (topic.assignment or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
    )


def _assigned(brokers: Sequence[Sequence[int]] | None) -> list[CreatePartitionsAssignment] | None:
    return None if brokers is None else [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in brokers]


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN
