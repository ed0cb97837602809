"""Creates the topics that a topology declares, when their cluster comes up. Never changes or deletes one."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.client import ClusterClient, NewTopic
from protocol.errors import ErrorCode, KafkaError
from topology.models import Topic


async def create_declared_topics(client: ClusterClient, topics: Mapping[str, Topic]) -> list[str]:
    """Names of the topics that did not exist before. Raises KafkaError naming the topic that was refused."""
    created = []
    for name, topic in topics.items():
        configs = {key: _config_text(value) for key, value in topic.configs.items()}
        try:
            await client.create_topics([NewTopic(name, topic.partitions, topic.replication_factor, configs)])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        else:
            created.append(name)
    return created


def _config_text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
