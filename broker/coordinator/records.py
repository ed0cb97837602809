"""Records of `__consumer_offsets`: Kafka's own keys and values, to bytes and back.

A key starts with an int16 that says what it is about, a value with the int16 of its version; a null value
is a tombstone. Everything that Kafka has ever written is read. Written are the newest layouts that the
tools of all Kafka versions read: offsets in version 3 (1 with an explicit expiry), groups in version 3.
Kafka 4.1 and later also read these (`GroupCoordinatorRecordHelpers`, `OffsetCommitValue.json`,
`GroupMetadataValue.json`).
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeVar

from broker.coordinator.groups.events import GroupImage, MemberImage
from broker.coordinator.offsets.committed import NO_EXPIRY, CommittedOffset
from protocol.codec import decode, dumps
from protocol.codec.schema import RecordSchema
from protocol.errors import DecodeError
from protocol.messages.group_metadata_key import GroupMetadataKey
from protocol.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from protocol.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from protocol.messages.offset_commit_key import OffsetCommitKey
from protocol.messages.offset_commit_value import OffsetCommitValue
from protocol.records import Record
from protocol.types import TopicPartition

_PREFIX = struct.Struct(">h")
_OFFSET_VERSION = 3
_OFFSET_VERSION_WITH_EXPIRY = 1
_GROUP_VERSION = 3

V = TypeVar("V", bound=RecordSchema)


class OffsetKey(NamedTuple):
    """The record is about a committed offset."""

    group_id: str
    partition: TopicPartition


class GroupKey(NamedTuple):
    """The record is about a group's members."""

    group_id: str


def read_key(data: bytes) -> OffsetKey | GroupKey | None:
    """Return what a record is about; None for kinds that belong to group types we do not have (KIP-848).

    Raises `DecodeError`.
    """
    kind = _prefix(data, "key")
    if kind in (OffsetCommitKey.RECORD_TYPE, LegacyOffsetCommitKey.RECORD_TYPE):
        key = decode(OffsetCommitKey, 0, data, _PREFIX.size)
        return OffsetKey(key.group, TopicPartition(key.topic, key.partition))
    if kind == GroupMetadataKey.RECORD_TYPE:
        return GroupKey(decode(GroupMetadataKey, 0, data, _PREFIX.size).group)
    return None


def read_offset(data: bytes) -> CommittedOffset:
    """Return the offset in the value of an `OffsetKey` record. Raises `DecodeError`."""
    value = _value(OffsetCommitValue, data)
    return CommittedOffset(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp
    )


def read_group(data: bytes) -> GroupImage:
    """Return the group in the value of a `GroupKey` record. Raises `DecodeError`."""
    value = _value(GroupMetadataValue, data)
    return GroupImage(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        state_timestamp_ms=value.current_state_timestamp,
        members=tuple(
            MemberImage(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                # Version 0 knew only one timeout.
                rebalance_timeout_ms=(
                    member.session_timeout if member.rebalance_timeout < 0 else member.rebalance_timeout
                ),
                session_timeout_ms=member.session_timeout,
                metadata=bytes(member.subscription),
                assignment=bytes(member.assignment),
            )
            for member in value.members
        ),
    )


def offset_record(
    group_id: str, partition: TopicPartition, committed: CommittedOffset | None, now_ms: int
) -> Record:
    """Return the record that stores an offset, or its tombstone for None."""
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    if committed is None:
        return _record(key, None, 0, now_ms)
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_ms,
        expire_timestamp=committed.expire_ms,
    )
    plain = committed.expire_ms == NO_EXPIRY
    return _record(key, value, _OFFSET_VERSION if plain else _OFFSET_VERSION_WITH_EXPIRY, now_ms)


def group_record(group_id: str, image: GroupImage | None, now_ms: int) -> Record:
    """Return the record that stores a group, or its tombstone for None."""
    key = GroupMetadataKey(group=group_id)
    if image is None:
        return _record(key, None, 0, now_ms)
    value = GroupMetadataValue(
        protocol_type=image.protocol_type,
        generation=image.generation,
        protocol=image.protocol,
        leader=image.leader,
        current_state_timestamp=image.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata,
                assignment=member.assignment,
            )
            for member in image.members
        ],
    )
    return _record(key, value, _GROUP_VERSION, now_ms)


def _record(key: RecordSchema, value: RecordSchema | None, version: int, now_ms: int) -> Record:
    return Record(
        offset=0,
        timestamp=now_ms,
        key=_PREFIX.pack(key.RECORD_TYPE) + dumps(key, 0),
        value=None if value is None else _PREFIX.pack(version) + dumps(value, version),
    )


def _value(schema: type[V], data: bytes) -> V:
    version = _prefix(data, "value")
    low, high = schema.VALID_VERSIONS
    if not low <= version <= high:
        raise DecodeError(f"{schema.__name__} of version {version}, known are {low} to {high}")
    return decode(schema, version, data, _PREFIX.size)


def _prefix(data: bytes, what: str) -> int:
    if len(data) < _PREFIX.size:
        raise DecodeError(f"{what} of {len(data)} bytes has no kind or version in front")
    (number,) = _PREFIX.unpack_from(data)
    return int(number)
