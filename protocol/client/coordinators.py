"""Asking a broker who coordinates a group or a transactional id (FindCoordinator), in either of its forms."""

from enum import IntEnum

from protocol.client.connection import Connection
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.find_coordinator_request import FindCoordinatorRequest
from protocol.messages.find_coordinator_response import Coordinator


class CoordinatorKind(IntEnum):
    GROUP = 0
    TRANSACTION = 1


async def ask_for_coordinator(
    connection: Connection, key: str, kind: CoordinatorKind, *, timeout_s: float
) -> Coordinator:
    """What this broker answers, errors included. Raises KafkaError when it answers nothing."""
    version = connection.version_of(FindCoordinatorRequest)
    if version >= 4:  # KIP-699: several keys at once
        answer = await connection.send(
            FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]),
            version,
            timeout_s=timeout_s,
        )
        if not answer.coordinators:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{connection.peer}: {key}")
        return answer.coordinators[0]
    old = await connection.send(FindCoordinatorRequest(key=key, key_type=kind), version, timeout_s=timeout_s)
    return Coordinator(
        key=key,
        node_id=old.node_id,
        host=old.host,
        port=old.port,
        error_code=old.error_code,
        error_message=old.error_message,
    )
