"""Contents of ZooKeeper nodes: Kafka's JSON, read and written, so that operators' tools and ours agree.

Each class is one kind of node with `encode() -> bytes` and `decode(bytes)`; a node that cannot be read raises
NodeFormatError, which names the kind. Must not do I/O. (Kafka: `ZkData`, `TopicZNode`, `BrokerIdZNode`, …)
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from broker.config import Endpoint
from protocol.types import ZERO_UUID, uuid_from_text, uuid_to_text


class NodeFormatError(Exception):
    """A node does not hold what Kafka writes there."""


def _read(kind: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NodeFormatError(f"{kind}: not JSON: {data[:80]!r}") from error
    if not isinstance(value, dict):
        raise NodeFormatError(f"{kind}: not a JSON object: {data[:80]!r}")
    return value


def _number(value: Any, least: int = 0) -> int:
    """An INT32 of Kafka's protocol: what cannot be sent is no content. Raises ValueError, TypeError."""
    if isinstance(value, bool | float):
        raise TypeError(f"{value!r} is no number of a broker, a partition or an epoch")
    number = int(value)
    if not least <= number < 2**31:
        raise ValueError(f"{number} is out of range")
    return number


def _write(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """/brokers/ids/<id>, version 5."""

    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    timestamp_ms: int = 0
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Lowest and highest level of each feature that the broker can do."""
    previous_end: str = ""
    """How the run before ended, where that was not cleanly (`last_replica.PreviousEnd`); not Kafka's."""

    def encode(self) -> bytes:
        plain = next((endpoint for endpoint in self.endpoints if endpoint.protocol == "PLAINTEXT"), None)
        value: dict[str, Any] = {
            "version": 5,
            "host": plain.host if plain else None,
            "port": plain.port if plain else -1,
            "jmx_port": -1,
            "timestamp": str(self.timestamp_ms),
            "endpoints": [str(endpoint) for endpoint in self.endpoints],
            "listener_security_protocol_map": {item.name: item.protocol for item in self.endpoints},
            "features": {
                name: {"min_version": low, "max_version": high} for name, (low, high) in self.features.items()
            },
        }
        if self.rack is not None:
            value["rack"] = self.rack
        if self.previous_end:
            value["previous_end"] = self.previous_end
        return _write(value)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        value = _read("broker", data)
        protocols = value.get("listener_security_protocol_map") or {}
        try:
            endpoints = tuple(_endpoint(text, protocols) for text in value["endpoints"])
            features = {
                str(name): (int(levels["min_version"]), int(levels["max_version"]))
                for name, levels in (value.get("features") or {}).items()
            }
            if not endpoints:
                raise ValueError("no endpoints")
            rack, timestamp_ms = value.get("rack"), int(value.get("timestamp", 0))
            if not isinstance(rack, str | None):
                raise TypeError(f"rack {rack!r} is no text")
            return cls(endpoints, rack, timestamp_ms, features, str(value.get("previous_end", "")))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise NodeFormatError(f"broker: {error!r} in {data[:200]!r}") from error


def _endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    name, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    number = _number(port)
    if number > 65535:
        raise ValueError(f"{number} is no port")
    return Endpoint(name, host.strip("[]"), number, protocols.get(name, name))


@dataclass(frozen=True, slots=True)
class TopicNode:
    """/brokers/topics/<topic>, version 3: the topic's id and its replicas by partition."""

    topic_id: bytes
    assignment: Mapping[int, tuple[int, ...]]
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def encode(self) -> bytes:
        return _write(
            {
                "partitions": {str(index): list(replicas) for index, replicas in self.assignment.items()},
                "topic_id": uuid_to_text(self.topic_id),
                "adding_replicas": {str(index): list(item) for index, item in self.adding.items()},
                "removing_replicas": {str(index): list(item) for index, item in self.removing.items()},
                "version": 3,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        value = _read("topic", data)
        try:
            text = value.get("topic_id")
            assignment = _replicas(value["partitions"])
            if not all(assignment.values()):
                raise ValueError("a partition has no replica")
            return cls(
                uuid_from_text(text) if text else ZERO_UUID,
                assignment,
                _replicas(value.get("adding_replicas") or {}),
                _replicas(value.get("removing_replicas") or {}),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise NodeFormatError(f"topic: {error!r} in {data[:200]!r}") from error


def _replicas(value: Mapping[str, list[int]]) -> dict[int, tuple[int, ...]]:
    found = {
        _number(index): tuple(_number(number) for number in value[index]) for index in sorted(value, key=int)
    }
    for index, replicas in found.items():
        if len(set(replicas)) != len(replicas):
            raise ValueError(f"partition {index} names a broker twice")
    return found


class PartitionState(NamedTuple):
    """/brokers/topics/<topic>/partitions/<partition>/state, version 1. Leader -1 = none."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    suspects: tuple[int, ...] = ()
    """Members that lead only on a person's word (`last_replica`). Kafka skips them."""

    def encode(self) -> bytes:
        value: dict[str, Any] = {
            "controller_epoch": self.controller_epoch,
            "leader": self.leader,
            "version": 1,
            "leader_epoch": self.leader_epoch,
            "isr": list(self.isr),
        }
        if self.suspects:
            value["suspects"] = list(self.suspects)
        return _write(value)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        value = _read("partition state", data)
        try:
            isr = tuple(_number(number) for number in value["isr"])
            if not isr:
                raise ValueError("nobody is in sync")
            return cls(
                _number(value["leader"], least=-1),
                _number(value["leader_epoch"]),
                isr,
                _number(value["controller_epoch"]),
                tuple(_number(number) for number in value.get("suspects", ())),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise NodeFormatError(f"partition state: {error!r} in {data[:200]!r}") from error


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """/controller, version 2."""
    return _write(
        {"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1}
    )


def decode_controller(data: bytes) -> int:
    """Broker id of the controller."""
    try:
        return int(_read("controller", data)["brokerid"])
    except (KeyError, TypeError, ValueError) as error:
        raise NodeFormatError(f"controller: {error!r} in {data[:200]!r}") from error


def encode_epoch(epoch: int) -> bytes:
    """/controller_epoch: a plain number."""
    return str(epoch).encode()


def decode_epoch(data: bytes) -> int:
    try:
        return int(data)
    except ValueError as error:
        raise NodeFormatError(f"controller epoch: not a number: {data[:80]!r}") from error


def encode_cluster_id(cluster_id: str) -> bytes:
    return _write({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    cluster_id = _read("cluster id", data).get("id")
    if not isinstance(cluster_id, str) or not cluster_id:
        raise NodeFormatError(f"cluster id: no id in {data[:200]!r}")
    return cluster_id


def encode_config(config: Mapping[str, str]) -> bytes:
    """/config/<kind>/<name>."""
    return _write({"version": 1, "config": dict(config)})


def decode_config(data: bytes) -> dict[str, str]:
    if not data:
        return {}
    config = _read("config", data).get("config")
    if not isinstance(config, dict):
        raise NodeFormatError(f"config: no settings in {data[:200]!r}")
    return {str(name): str(value) for name, value in config.items()}


def encode_config_change(entity_path: str) -> bytes:
    """/config/changes/config_change_N, version 2; `entity_path` is for example topics/orders."""
    return _write({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str:
    path = _read("config change", data).get("entity_path")
    if not isinstance(path, str):
        raise NodeFormatError(f"config change: no entity_path in {data[:200]!r}")
    return path


class ProducerIdBlock(NamedTuple):
    """/latest_producer_id_block: the newest block given out, both ends included."""

    broker_id: int
    first: int
    last: int

    def encode(self) -> bytes:
        return _write(
            {
                "version": 1,
                "broker": self.broker_id,
                "block_start": str(self.first),
                "block_end": str(self.last),
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        value = _read("producer id block", data)
        try:
            return cls(int(value["broker"]), int(value["block_start"]), int(value["block_end"]))
        except (KeyError, TypeError, ValueError) as error:
            raise NodeFormatError(f"producer id block: {error!r} in {data[:200]!r}") from error
