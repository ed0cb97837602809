"""Higher leader epochs on request: the job of the controller that mirrors need.

The leader epoch of a mirror stands above all epochs of its source, whose batches it keeps as they are:
consumers take an epoch that they have seen in a batch or with a committed offset as the least that a leader
can have (KIP-320), and a copy that goes on by itself must never write in an epoch that its source may use as
well. The leader stays, and so do the in-sync replicas; it is a new term, no election.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.control.controller_core import StateWrite
from broker.control.controller_jobs import Results, Work
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition

HIGHEST_EPOCH = 2**31 - 2


async def raise_epochs(work: Work, least: Mapping[TopicPartition, int]) -> Results:
    """Have each of these partitions in a term of at least the epoch that is asked for."""
    results: Results = {}
    writes = []
    for partition, epoch in least.items():
        try:
            write = _raised(work, partition, epoch)
        except KafkaError as error:
            results[partition] = error
            continue
        results[partition] = None
        if write is not None:
            writes.append(write)
    await work.write(writes)
    for partition, epoch in least.items():
        stored = work.core.states.get(partition)
        if results[partition] is None and (stored is None or stored.state.leader_epoch < epoch):
            results[partition] = KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"{partition}: its state could not be written, try again"
            )
    return results


def _raised(work: Work, partition: TopicPartition, least: int) -> StateWrite | None:
    core = work.core
    stored = core.states.get(partition)
    if stored is None or partition.topic in core.deleting:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
    if partition in core.unread or stored.state.leader < 0:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
    if least > HIGHEST_EPOCH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{partition}: there is no leader epoch {least}")
    if stored.state.leader_epoch >= least:
        return None
    state = stored.state._replace(leader_epoch=least, controller_epoch=core.sender.epoch)
    return StateWrite(partition, state, stored.version)
