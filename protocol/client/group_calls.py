"""Consumer groups from the outside: list, describe, offsets, delete.

Owns the requests that go to the coordinator of each group. Listing asks every broker and fails if one does
not answer, because a list with holes looks like groups that are gone.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from protocol.client.connection import Connection
from protocol.client.errors import ClientError, NotSupportedError
from protocol.client.failures import each, failure, raise_first
from protocol.client.retry import RetryPolicy, retrying
from protocol.client.routing import Router
from protocol.client.same_again import SameAgain
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from protocol.messages.consumer_group_describe_response import DescribedGroup as DescribedConsumerGroup
from protocol.messages.delete_groups_request import DeleteGroupsRequest
from protocol.messages.describe_groups_request import DescribeGroupsRequest
from protocol.messages.describe_groups_response import DescribedGroup
from protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups_request import ListGroupsRequest
from protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from protocol.types import TopicPartition

COORDINATOR_MOVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
_BY_NAME: Final = 9
"""Newest versions of OffsetCommit and OffsetFetch that name topics; later ones have ids alone."""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """`state` and `group_type` are empty if the broker does not tell."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """`metadata` and `assignment` are opaque, for consumers see ConsumerProtocolSubscription/-Assignment;
    empty in a group of the consumer protocol."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group that does not exist has the state `Dead`."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    coordinator: int


class Committed(NamedTuple):
    """`leader_epoch` is -1 if it is not known."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


OffsetsAgain = SameAgain[OffsetFetchResponse, dict[TopicPartition, Committed]]


class GroupCalls(Router):
    """Part of `ClusterClient`."""

    async def list_groups(self, *, retry: RetryPolicy | None = None) -> list[ListedGroup]:
        """All groups of the cluster, by name."""
        await self.metadata((), retry=retry or self.retry)

        async def at(node: int) -> list[ListedGroup] | ProtocolError:
            try:
                answer = await self.send_to(node, ListGroupsRequest())
            except ProtocolError as error:
                return error
            if answer.error_code:
                return failure(answer.error_code, f"groups of broker {node}")
            return [
                ListedGroup(row.group_id, row.protocol_type, row.group_state, row.group_type, node)
                for row in answer.groups
            ]

        async def attempt(nodes: dict[int, None]) -> dict[int, list[ListedGroup] | ProtocolError]:
            return dict(zip(nodes, await asyncio.gather(*map(at, nodes)), strict=True))

        found = await each(dict.fromkeys(self.brokers), attempt, retry or self.retry)
        return sorted(
            (group for groups in found.values() for group in groups), key=lambda group: group.group_id
        )

    async def describe_groups(
        self, groups: Collection[str], *, retry: RetryPolicy | None = None
    ) -> dict[str, GroupDescription]:
        """One request per coordinator; another one about groups that only the consumer protocol may know
        (KIP-848): classic answers call them dead. Of share and streams groups the state stays `Dead`."""

        async def call(node: int, part: list[str]) -> dict[str, GroupDescription | KafkaError]:
            answer = await self.send_to(node, DescribeGroupsRequest(groups=part))
            found = {row.group_id: _described(row, node) for row in answer.groups}
            unknown = [group for group, row in found.items() if _is_dead(row)]
            return found | await self._consumer_groups(node, unknown) if unknown else found

        async def attempt(left: dict[str, None]) -> dict[str, GroupDescription | BaseException]:
            results: dict[str, GroupDescription | BaseException] = {}
            parts: dict[int, list[str]] = {}
            for group in left:
                try:
                    parts.setdefault(await self.coordinator(group), []).append(group)
                except ProtocolError as error:
                    results[group] = error
            for node, part in parts.items():
                try:
                    results.update(await call(node, part))
                except ProtocolError as error:
                    results.update(dict.fromkeys(part, error))
            for group, result in results.items():
                self._coordinator_moved(group, result)
            return results

        return await each(dict.fromkeys(groups), attempt, retry or self.retry)

    async def _consumer_groups(
        self, node: int, groups: list[str]
    ) -> dict[str, GroupDescription | KafkaError]:
        """Those among `groups` that are of the consumer protocol."""
        try:
            answer = await self.send_to(node, ConsumerGroupDescribeRequest(group_ids=groups))
        except NotSupportedError:  # before Kafka 3.7 there are none
            return {}
        return {
            row.group_id: _described_consumers(row, node)
            for row in answer.groups
            if row.error_code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
        }

    async def committed(
        self,
        group: str,
        tps: Collection[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        again: OffsetsAgain | None = None,
        retry: RetryPolicy | None = None,
    ) -> dict[TopicPartition, Committed]:
        """Committed offsets, of all partitions with None; a partition without one is left out.

        With `require_stable` it waits for offsets that a transaction is about to commit. Who asks the same
        often keeps an `again` for it: while nothing has changed the result is the same object, and nobody
        may change it.
        """
        topics = None if tps is None else _partitions_by_topic(tps)

        async def attempt() -> dict[TopicPartition, Committed]:
            try:
                node = await self.coordinator(group)
                connection = await self.connection_to(node)
                answer = await _fetch_offsets(connection, group, topics, require_stable, again)
                if again is None:
                    return _read_offsets(group, answer)
                return again.made(answer, partial(_read_offsets, group))
            except ProtocolError as error:
                self._coordinator_moved(group, error)
                raise

        return await retrying(attempt, retry or self.retry)

    async def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, Committed],
        *,
        retry: RetryPolicy | None = None,
    ) -> None:
        """Commits for a group without members. Raises `KafkaError` naming a partition that was refused;
        UNKNOWN_MEMBER_ID then means that the group has members."""

        async def attempt(
            left: dict[TopicPartition, Committed],
        ) -> dict[TopicPartition, bool | BaseException]:
            request = OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=[
                    OffsetCommitRequestTopic(
                        name=name,
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=index,
                                committed_offset=left[TopicPartition(name, index)].offset,
                                committed_leader_epoch=left[TopicPartition(name, index)].leader_epoch,
                                committed_metadata=left[TopicPartition(name, index)].metadata,
                            )
                            for index in indexes
                        ],
                    )
                    for name, indexes in _partitions_by_topic(left).items()
                ],
            )
            answer = await self.send_coordinator(group, request, highest=_BY_NAME)
            results: dict[TopicPartition, bool | BaseException] = {}
            for topic in answer.topics:
                for row in topic.partitions:
                    tp = TopicPartition(topic.name, row.partition_index)
                    where = f"group {group}, commit of {tp}"
                    results[tp] = failure(row.error_code, where) if row.error_code else True
                    self._coordinator_moved(group, results[tp])
            return results

        if offsets:
            await each(offsets, attempt, retry or self.retry)

    async def remove_members(self, group: str, reason: str, *, retry: RetryPolicy | None = None) -> int:
        """Has all members leave, as KIP-571 does; those that live join again, and begin where the group's
        offsets are. How many there were. Members of the consumer protocol stay. Raises KafkaError."""
        found = (await self.describe_groups([group], retry=retry))[group]

        async def attempt() -> None:
            members = [
                MemberIdentity(
                    member_id=member.member_id, group_instance_id=member.group_instance_id, reason=reason
                )
                for member in found.members
            ]
            try:
                answer = await self.send_coordinator(
                    group, LeaveGroupRequest(group_id=group, members=members)
                )
                if answer.error_code:
                    raise failure(answer.error_code, f"group {group}")
            except ProtocolError as error:
                self._coordinator_moved(group, error)
                raise

        if found.members:
            await retrying(attempt, retry or self.retry)
        return len(found.members)

    async def delete_groups(self, groups: Collection[str], *, retry: RetryPolicy | None = None) -> None:
        """Raises `KafkaError` naming a group that was not deleted, e.g. because it has members."""

        async def one(group: str) -> bool | ProtocolError:
            try:
                answer = await self.send_coordinator(group, DeleteGroupsRequest(groups_names=[group]))
            except ProtocolError as error:
                return error
            code = answer.results[0].error_code
            result = failure(code, f"group {group}") if code else True
            self._coordinator_moved(group, result)
            return result

        async def attempt(left: dict[str, None]) -> dict[str, bool | ProtocolError]:
            return {group: await one(group) for group in left}

        await each(dict.fromkeys(groups), attempt, retry or self.retry)

    def _coordinator_moved(self, group: str, result: object) -> None:
        moved = isinstance(result, KafkaError) and result.code in COORDINATOR_MOVED
        if moved or isinstance(result, ClientError):
            self.forget_coordinator(group)


def _described(row: DescribedGroup, node: int) -> GroupDescription | KafkaError:
    if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return GroupDescription(row.group_id, "Dead", "", "", (), node)
    if row.error_code:
        return failure(row.error_code, f"group {row.group_id}", row.error_message)
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            bytes(member.member_metadata),
            bytes(member.member_assignment),
        )
        for member in row.members
    )
    return GroupDescription(
        row.group_id, row.group_state, row.protocol_type, row.protocol_data, members, node
    )


def _is_dead(row: GroupDescription | KafkaError) -> bool:
    return isinstance(row, GroupDescription) and row.state == "Dead"


def _described_consumers(row: DescribedConsumerGroup, node: int) -> GroupDescription | KafkaError:
    """Members of the consumer protocol have no metadata, and an assignment that is no bytes."""
    if row.error_code:
        return failure(row.error_code, f"group {row.group_id}", row.error_message)
    members = tuple(
        GroupMember(member.member_id, member.instance_id, member.client_id, member.client_host, b"", b"")
        for member in row.members
    )
    return GroupDescription(row.group_id, row.group_state, "consumer", row.assignor_name, members, node)


async def _fetch_offsets(
    connection: Connection,
    group: str,
    topics: Mapping[str, list[int]] | None,
    require_stable: bool,
    again: OffsetsAgain | None,
) -> OffsetFetchResponse:
    version = connection.version_of(OffsetFetchRequest, _BY_NAME)
    if version >= 8:  # KIP-709: several groups at once
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group,
                    topics=None
                    if topics is None
                    else [
                        OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                        for name, indexes in topics.items()
                    ],
                )
            ],
            require_stable=require_stable,
        )
    else:
        request = OffsetFetchRequest(
            group_id=group,
            topics=None
            if topics is None
            else [
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ],
            require_stable=require_stable and version >= 7,
        )
    return await connection.send(request, version, read=None if again is None else again.read)


def _read_offsets(group: str, answer: OffsetFetchResponse) -> dict[TopicPartition, Committed]:
    code = answer.groups[0].error_code if answer.groups else answer.error_code
    if code:
        raise failure(code, f"group {group}")
    rows: list[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]] = [
        (topic.name, row) for topic in answer.topics for row in topic.partitions
    ]
    rows += [(topic.name, row) for of in answer.groups for topic in of.topics for row in topic.partitions]
    found: dict[TopicPartition, Committed] = {}
    errors: dict[TopicPartition, BaseException] = {}
    for name, row in rows:
        tp = TopicPartition(name, row.partition_index)
        if row.error_code:
            errors[tp] = failure(row.error_code, f"group {group}, {tp}")
        elif row.committed_offset >= 0:
            found[tp] = Committed(row.committed_offset, row.committed_leader_epoch, row.metadata)
    raise_first(errors)
    return found


def _partitions_by_topic(tps: Collection[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for tp in tps:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics
