"""A broker with one safety rule switched off, to show that the harness finds what the rule is for.

    python -m tests.chaos.broken RULE broker …      # the rest is the command line of `isthmus`

Patches the real code in the process of this broker alone; production has no such switch.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

from broker.control.controller import Controller
from broker.control.isr_proposals import Proposals, Verdicts
from broker.control.nodes import PartitionState
from broker.control.orders import StoredState
from broker.log import Log, LogConfig
from broker.replication import Partition, ReplicaManager, followed_copy, truncation
from broker.replication.in_sync import InSyncReplicas
from broker.server.handlers import controller_orders
from isthmus.cli import main
from protocol.errors import ErrorCode
from protocol.messages.leader_and_isr_request import LeaderAndIsrPartitionState

logger = logging.getLogger("isthmus.broker")


def _replace(owner: object, name: str, broken: object) -> None:
    """Raises AttributeError where the real code has moved: a rule that stays on would prove nothing."""
    getattr(owner, name)
    setattr(owner, name, broken)


def _high_watermark() -> None:
    """A leader counts what it alone has as replicated."""

    def alone(self: Partition) -> None:
        self._alone = self.is_leader

    def own_end(self: InSyncReplicas, leader_end: int) -> int:
        return leader_end

    _replace(Partition, "_isr_changed", alone)
    _replace(InSyncReplicas, "high_watermark", own_end)


def _truncation() -> None:
    """A follower keeps what its leader does not have, and a leader does not look."""

    def keep(log: Log, *_: int) -> truncation.Cut:
        return truncation.Cut(log.end_offset, True)

    _replace(followed_copy, "where_to_cut", keep)

    def anything(self: Log, epoch: int) -> tuple[int, int]:
        return epoch, 1 << 62

    _replace(Log, "epoch_end_offset", anything)
    original = Partition.append_copies

    def append_beyond(self: Partition, batches: memoryview) -> None:
        """What overlaps is passed over: else it would be refused, and nothing would differ unseen."""
        at = 0
        while at < len(batches) and int.from_bytes(batches[at : at + 8]) < self.log.end_offset:
            at += 12 + int.from_bytes(batches[at + 8 : at + 12])
        if at < len(batches):
            original(self, batches[at:])

    _replace(Partition, "append_copies", append_beyond)


def _min_isr() -> None:
    """acks=all is content with whoever is in sync, the leader alone too."""
    original = LogConfig.from_settings.__func__  # type: ignore[attr-defined]

    def without(cls: type[LogConfig], settings: Mapping[str, Any]) -> LogConfig:
        kept = {name: value for name, value in settings.items() if name != "min.insync.replicas"}
        config: LogConfig = original(cls, kept)
        return config

    _replace(LogConfig, "from_settings", classmethod(without))


def _epoch_fencing() -> None:
    """Orders of an old controller, and of an old term of a leader, are obeyed, and so is what a former leader
    says of the ISR; no replica looks at epochs.
    """

    def obeyed(*_: object) -> ErrorCode:
        return ErrorCode.NONE

    def content(self: Partition, current_leader_epoch: int) -> None:
        pass

    original = ReplicaManager._apply_state

    def any_term(
        self: ReplicaManager, topic_id: bytes, topic: str, state: LeaderAndIsrPartitionState, *, is_new: bool
    ) -> ErrorCode:
        partition = self.get(topic, state.partition_index)
        if partition is not None and state.leader_epoch < partition.leader_epoch:
            logger.warning("%s: obeys an order of term %d", partition, state.leader_epoch)
            partition.leader_epoch = state.leader_epoch - 1
        return original(self, topic_id, topic, state, is_new=is_new)

    ask = Controller.alter_isr

    async def believed(self: Controller, leader: int, proposals: Proposals) -> Verdicts:
        """A former leader hears what it wants to hear; stored is nothing, so that the cluster heals."""
        verdicts = await ask(self, leader, proposals)
        for partition, proposal in proposals.items():
            if verdicts[partition] == ErrorCode.FENCED_LEADER_EPOCH:
                isr = tuple(member for member, _ in proposal.isr)
                wanted = PartitionState(leader, proposal.leader_epoch, isr, 0)
                verdicts[partition] = StoredState(wanted, proposal.partition_epoch)
        return verdicts

    _replace(Controller, "alter_isr", believed)
    _replace(controller_orders, "_refusal", obeyed)
    _replace(Partition, "check_epoch", content)
    _replace(ReplicaManager, "_apply_state", any_term)
    ReplicaManager.controller_epoch = property(lambda self: 0, lambda self, epoch: None)  # type: ignore[assignment]


RULES: dict[str, Callable[[], None]] = {
    "epoch_fencing": _epoch_fencing,
    "high_watermark": _high_watermark,
    "min_isr": _min_isr,
    "truncation": _truncation,
}

if __name__ == "__main__":
    RULES[sys.argv.pop(1)]()
    main()
