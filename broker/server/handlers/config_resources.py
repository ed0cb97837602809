"""Resources that have settings, as DescribeConfigs and both AlterConfigs name them; no handler of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.control.topic_rules import wrong_name
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.server.app import Broker

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8


def check_topic(broker: Broker, name: str) -> None:
    """Raises KafkaError unless the topic exists."""
    complaint = wrong_name(name)
    if complaint is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, complaint)
    if broker.metadata.topic(name) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")


def check_broker(broker: Broker, name: str) -> None:
    """Raises KafkaError unless `name` is this broker's number."""
    if not name.isdigit():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a broker's number is expected, not {name!r}")
    if int(name) != broker.metadata.broker_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"this is broker {broker.metadata.broker_id}: ask broker {name} itself for its settings",
        )


def unsupported(resource_type: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"resources of type {resource_type} have no settings here (topic 2, broker 4)",
    )
