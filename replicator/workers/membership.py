"""One member of a group at the target cluster, by the ordinary group protocol (KIP-62, KIP-394, KIP-429).

Owns the requests JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and who this member is. It must not know
what members tell each other, nor decide what follows from an answer: errors are raised as `KafkaError`.
Joining has a connection of its own, because its answer comes only when all members have joined.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from protocol.client import ClientError, ClusterClient
from protocol.client.failures import failure
from protocol.client.group_calls import COORDINATOR_MOVED
from protocol.codec.schema import Request, Response
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.heartbeat_request import HeartbeatRequest
from protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment

R = TypeVar("R", bound=Response)

_JOIN_LANE, _BEAT_LANE = "join", "heartbeat"
_ANSWER_S = 5.0


@dataclass(frozen=True, slots=True)
class Round:
    """A generation of the group. `members` (id -> metadata) are told to the leader only."""

    generation: int
    leading: bool
    members: Mapping[str, bytes]


class Membership:
    """Of one process in one group; not joined at first."""

    def __init__(
        self,
        client: ClusterClient,
        group: str,
        *,
        protocol_type: str,
        protocol_name: str,
        session_s: float,
        rebalance_s: float,
    ) -> None:
        self.group = group
        self.member_id = ""
        self.generation = -1
        self._client = client
        self._protocol_type = protocol_type
        self._protocol_name = protocol_name
        self._session_ms = round(session_s * 1000)
        self._rebalance_ms = round(rebalance_s * 1000)

    async def join(self, metadata: bytes, reason: str = "") -> Round:
        """Waits for all members. The coordinator may name us first and ask again (KIP-394)."""
        for _ in range(2):
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=self._session_ms,
                rebalance_timeout_ms=self._rebalance_ms,
                member_id=self.member_id,
                protocol_type=self._protocol_type,
                protocols=[JoinGroupRequestProtocol(name=self._protocol_name, metadata=metadata)],
                reason=reason or None,
            )
            answer = await self._send(request, _JOIN_LANE, self._rebalance_ms / 1000 + _ANSWER_S)
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
            self.member_id = answer.member_id
        self._check(answer.error_code, "joining")
        self.member_id, self.generation = answer.member_id, answer.generation_id
        members = {row.member_id: bytes(row.metadata) for row in answer.members}
        return Round(answer.generation_id, answer.leader == answer.member_id, members)

    async def sync(self, orders: Mapping[str, bytes]) -> bytes:
        """Hands out the leader's orders (others give none); what is said to this member."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=self._protocol_type,
            protocol_name=self._protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=data)
                for member, data in orders.items()
            ],
        )
        answer = await self._send(request, _JOIN_LANE, self._rebalance_ms / 1000 + _ANSWER_S)
        self._check(answer.error_code, "the plan")
        return bytes(answer.assignment)

    async def heartbeat(self) -> None:
        """Raises KafkaError; REBALANCE_IN_PROGRESS says that this member is one, and should join again."""
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        answer = await self._send(request, _BEAT_LANE, _ANSWER_S)
        self._check(answer.error_code, "heartbeat")

    async def leave(self) -> None:
        """Says good-bye, if this is a member."""
        member, self.member_id, self.generation = self.member_id, "", -1
        if member:
            await self.remove([member])

    async def remove(self, members: Collection[str]) -> None:
        """Takes members out that are known to be dead (or ourselves); one that is gone already is fine."""
        request = LeaveGroupRequest(
            group_id=self.group, members=[MemberIdentity(member_id=member) for member in members]
        )
        answer = await self._send(request, _BEAT_LANE, _ANSWER_S)
        self._check(answer.error_code, "leaving")

    def forget(self) -> None:
        """The coordinator does not know this member any more."""
        self.member_id, self.generation = "", -1

    async def _send(self, request: Request[R], lane: str, timeout_s: float) -> R:
        node = await self._client.coordinator(self.group)
        try:
            return await self._client.send_to(node, request, lane=lane, timeout_s=timeout_s)
        except ClientError:
            self._client.forget_coordinator(self.group)
            raise

    def _check(self, code: int, what: str) -> None:
        if not code:
            return
        error = failure(code, f"group {self.group}, {what}")
        if isinstance(error, KafkaError) and error.code in COORDINATOR_MOVED:
            self._client.forget_coordinator(self.group)
        raise error
