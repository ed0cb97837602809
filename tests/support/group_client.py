"""A group member over a real connection, step by step, in any version of the protocol."""

from __future__ import annotations

import asyncio

from protocol.client.connection import Connection
from protocol.messages.find_coordinator_request import FindCoordinatorRequest
from protocol.messages.heartbeat_request import HeartbeatRequest
from protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.join_group_response import JoinGroupResponse
from protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
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
from protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.messages.sync_group_response import SyncGroupResponse

SUBSCRIBED_TO_T = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"


class GroupClient:
    """`metadata` is what it joins with; by default a subscription to topic `t`."""

    def __init__(self, connection: Connection, group: str, *, instance: str | None = None) -> None:
        self.connection = connection
        self.group = group
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.metadata = SUBSCRIBED_TO_T
        self.protocol_type = "consumer"
        #: What it offers; None stands for `range` with `metadata`.
        self.protocols: list[tuple[str, bytes]] | None = None
        self.session_ms = 6_000
        self.rebalance_ms = 10_000

    async def until_coordinated(self, bound_s: float = 60.0) -> None:
        """Until the broker coordinates the group; the offsets topic is made when it is asked for."""
        async with asyncio.timeout(bound_s):
            while True:
                found = await self.connection.send(FindCoordinatorRequest(key=self.group), 3)
                if found.error_code == 0 and (await self.committed({"t": [0]}))[0] == 0:
                    return
                await asyncio.sleep(0.05)

    async def join(self, version: int = 9) -> JoinGroupResponse:
        """One JoinGroup; takes the member id and generation out of the answer."""
        answer = await self.connection.send(
            JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=self.session_ms,
                rebalance_timeout_ms=self.rebalance_ms if version else -1,
                member_id=self.member_id,
                group_instance_id=self.instance,
                protocol_type=self.protocol_type,
                protocols=[
                    JoinGroupRequestProtocol(name=name, metadata=metadata)
                    for name, metadata in self.protocols or [("range", self.metadata)]
                ],
            ),
            version,
        )
        if answer.member_id:
            self.member_id = answer.member_id
        if answer.error_code == 0:
            self.generation = answer.generation_id
        return answer

    async def enter(self, version: int = 9) -> JoinGroupResponse:
        """Join, in two steps where the version has them."""
        answer = await self.join(version)
        return await self.join(version) if answer.error_code == 79 else answer

    async def sync(self, assignments: dict[str, bytes] | None = None, version: int = 5) -> SyncGroupResponse:
        return await self.connection.send(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
                protocol_type=self.protocol_type if version >= 5 else None,
                protocol_name="range" if version >= 5 else None,
                assignments=[
                    SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                    for member_id, assignment in (assignments or {}).items()
                ],
            ),
            version,
        )

    async def be_alone(self) -> None:
        """Become the only member of a stable group, with assignment b"all"."""
        assert (await self.enter()).error_code == 0
        assert (await self.sync({self.member_id: b"all"})).assignment == b"all"

    async def heartbeat(self, version: int = 4) -> int:
        answer = await self.connection.send(
            HeartbeatRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
            ),
            version,
        )
        return answer.error_code

    async def leave(self, version: int = 5) -> tuple[int, list[int]]:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        request = LeaveGroupRequest(group_id=self.group)
        if version >= 3:
            request.members = [identity]
        else:
            request.member_id = self.member_id
        answer = await self.connection.send(request, version)
        return answer.error_code, [member.error_code for member in answer.members]

    async def commit(
        self, offsets: dict[tuple[str, int], int], version: int = 8, metadata: str | None = "", **fields: int
    ) -> dict[tuple[str, int], int]:
        """Commit as whoever this is (nobody before a join); returns the error of each partition."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata, **fields
                )
            )
        answer = await self.connection.send(
            OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
                topics=[
                    OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()
                ],
            ),
            version,
        )
        return {
            (topic.name, each.partition_index): each.error_code
            for topic in answer.topics
            for each in topic.partitions
        }

    async def committed(
        self, wanted: dict[str, list[int]] | None, version: int = 8
    ) -> tuple[int, dict[tuple[str, int], tuple[int, int]]]:
        """(error of the group, {partition: (offset, error)})."""
        if version >= 8:
            topics = (
                None
                if wanted is None
                else [
                    OffsetFetchRequestTopics(name=name, partition_indexes=each)
                    for name, each in wanted.items()
                ]
            )
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group, topics=topics)])
            (group,) = (await self.connection.send(request, version)).groups
            return group.error_code, _flat(group.topics)
        older = (
            None
            if wanted is None
            else [OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in wanted.items()]
        )
        answer = await self.connection.send(OffsetFetchRequest(group_id=self.group, topics=older), version)
        return answer.error_code, _flat(answer.topics)


def _flat(topics: list) -> dict[tuple[str, int], tuple[int, int]]:  # type: ignore[type-arg]
    return {
        (topic.name, each.partition_index): (each.committed_offset, each.error_code)
        for topic in topics
        for each in topic.partitions
    }
