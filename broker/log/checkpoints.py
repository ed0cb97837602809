"""Kafka's small text files: offset checkpoints, leader epochs, partition.metadata, meta.properties.

Owns the formats (Kafka's CheckpointFile, PartitionMetadataFile, MetaProperties, CleanShutdownFileHandler).
Does not know when they are written or what the numbers mean. Format of a checkpoint: version, number of
entries, then one entry a line, fields separated by a space.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.log.errors import LogError
from broker.log.files import read_if_exists, replace_file
from protocol.types import TopicPartition, uuid_from_text, uuid_to_text

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"


class CheckpointDamaged(LogError):
    """A checkpoint file does not read; the caller decides whether it can do without."""


def _lines(path: str, fields: int) -> list[list[str]]:
    data = read_if_exists(path)
    if data is None or not data:
        return []  # Kafka creates its checkpoints empty
    try:
        version, count, *lines = data.decode("utf-8").splitlines()
        rows = [line.rsplit(" ", fields - 1) for line in lines if line]
        if int(version) != 0 or int(count) != len(rows) or any(len(row) != fields for row in rows):
            raise ValueError("its version, count or number of fields is wrong")
    except ValueError as error:
        raise CheckpointDamaged(f"{path} does not read as a checkpoint: {error}") from None
    return rows


def _number(text: str, bits: int) -> int:
    number = int(text)
    if not 0 <= number < 1 << (bits - 1):
        raise ValueError(f"{text} is no offset or epoch")
    return number


def _write_lines(path: str, lines: list[str], *, sync: bool) -> None:
    text = "\n".join(["0", str(len(lines)), *lines]) + "\n"
    replace_file(path, text.encode("utf-8"), sync=sync)


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """Offsets by partition; a file that is not there holds none. Raises `CheckpointDamaged`."""
    try:
        return {TopicPartition(t, int(p)): _number(o, 64) for t, p, o in _lines(path, 3)}
    except ValueError as error:
        raise CheckpointDamaged(f"{path} does not read as a checkpoint: {error}") from None


def write_offsets(path: str, offsets: Mapping[TopicPartition, int]) -> None:
    _write_lines(path, [f"{t} {p} {offset}" for (t, p), offset in offsets.items()], sync=True)


def read_epochs(path: str) -> list[tuple[int, int]]:
    """(leader epoch, start offset) pairs in file order. Raises `CheckpointDamaged`."""
    try:
        return [(_number(epoch, 32), _number(start, 64)) for epoch, start in _lines(path, 2)]
    except ValueError as error:
        raise CheckpointDamaged(f"{path} does not read as a checkpoint: {error}") from None


def write_epochs(path: str, epochs: Iterable[tuple[int, int]], *, sync: bool = True) -> None:
    _write_lines(path, [f"{epoch} {start}" for epoch, start in epochs], sync=sync)


def read_topic_id(path: str) -> bytes | None:
    """Topic id of a partition directory; None when the file is missing, or empty after a power cut."""
    data = read_if_exists(path)
    if not data:
        return None
    try:
        values = dict(line.split(": ", 1) for line in data.decode("utf-8").splitlines() if line)
        if values["version"] != "0":
            raise ValueError(f"version {values['version']} is unknown")
        return uuid_from_text(values["topic_id"])
    except (KeyError, ValueError) as error:
        raise CheckpointDamaged(f"{path} does not read as partition metadata: {error}") from None


def write_topic_id(path: str, topic_id: bytes) -> None:
    # Not synced: the controller says the id again, and a topic may have thousands of partitions.
    replace_file(path, f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode(), sync=False)


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Identity in `meta.properties`. Version 0 is what brokers with ZooKeeper write (`broker.id`), 1 is
    KRaft's.
    """

    broker_id: int
    cluster_id: str


def read_meta_properties(path: str) -> MetaProperties | None:
    """None when the file is missing; raises `CheckpointDamaged` when it does not say who owns the
    directory.
    """
    data = read_if_exists(path)
    if data is None:
        return None
    values: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        if line.strip() and not line.lstrip().startswith(("#", "!")):
            key, _, value = line.partition("=")
            values[key.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
    id_key = "node.id" if values.get("version") == "1" else "broker.id"
    try:
        return MetaProperties(int(values[id_key]), values["cluster.id"])
    except (KeyError, ValueError):
        raise CheckpointDamaged(
            f"{path} lacks a number '{id_key}' or 'cluster.id': not a broker's directory, or damaged"
        ) from None


def write_meta_properties(path: str, meta: MetaProperties) -> None:
    text = f"#\nversion=0\nbroker.id={meta.broker_id}\ncluster.id={meta.cluster_id}\n"
    replace_file(path, text.encode("utf-8"))


def clean_shutdown_marker(broker_epoch: int) -> bytes:
    """Content of `.kafka_cleanshutdown` (KIP-966); the epoch is -1 where none is known."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()
