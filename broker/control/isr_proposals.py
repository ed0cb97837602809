"""Leaders' proposals for other in-sync replicas, as the controller takes them: together, one write for all.

Owns who waits for an answer. The core says what may be stored, the store writes it; each leader hears what is
stored then. Must not know requests. (Kafka: `KafkaController.processAlterPartition`, KIP-497.)
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from broker.control.controller_core import ControllerCore, StateWrite
from broker.control.controller_store import ControllerMoved
from broker.control.orders import StoredState
from broker.control.proposed_isr import IsrProposal
from broker.control.state_writer import StateWriter
from protocol.errors import ErrorCode
from protocol.types import TopicPartition

Proposals = Mapping[TopicPartition, IsrProposal]
Verdicts = dict[TopicPartition, ErrorCode | StoredState]
"""For each partition what is stored now, or why it is not what was proposed."""


class _Asked(NamedTuple):
    leader: int
    proposals: Proposals
    answer: asyncio.Future[Verdicts]


class IsrProposals:
    def __init__(self) -> None:
        self._asked: list[_Asked] = []

    def add(self, leader: int, proposals: Proposals) -> asyncio.Future[Verdicts]:
        """The answer comes after the next `decide`, or ControllerMoved after `refuse`."""
        answer: asyncio.Future[Verdicts] = asyncio.get_running_loop().create_future()
        self._asked.append(_Asked(leader, proposals, answer))
        return answer

    async def decide(self, core: ControllerCore, writer: StateWriter) -> None:
        """Write what may be stored, and answer. Raises ControllerMoved, SessionExpired."""
        asked, self._asked = self._asked, []
        if not asked:
            return
        verdicts, writes = _verdicts(core, asked)
        try:
            refused = await writer.write_isr(writes)
        except BaseException:
            _refuse(asked, "the controller has moved")
            raise
        for each, found in zip(asked, verdicts, strict=True):
            for partition, code in found.items():
                if code == ErrorCode.NONE:
                    found[partition] = (
                        ErrorCode.INVALID_UPDATE_VERSION
                        if partition in refused
                        else core.states.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    )
            if not each.answer.done():
                each.answer.set_result(found)

    def refuse(self, reason: str) -> None:
        asked, self._asked = self._asked, []
        _refuse(asked, reason)


def _verdicts(core: ControllerCore, asked: Sequence[_Asked]) -> tuple[list[Verdicts], list[StateWrite]]:
    writes: dict[TopicPartition, StateWrite] = {}
    verdicts: list[Verdicts] = []
    for leader, proposals, _ in asked:
        found: Verdicts = {}
        for partition, proposal in proposals.items():
            found[partition], write = core.propose_isr(leader, partition, proposal)
            if write is not None:
                writes[partition] = write
        verdicts.append(found)
    return verdicts, list(writes.values())


def _refuse(asked: Iterable[_Asked], reason: str) -> None:
    for each in asked:
        if not each.answer.done():
            each.answer.set_exception(ControllerMoved(reason))
