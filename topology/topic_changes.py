"""Reads the declared topics of a running cluster, and makes them what a plan says (`topic_plan`).

Works with any Kafka cluster, also one that runs elsewhere. Changes only what the plan's steps name, each
setting by itself (KIP-339), so that what others set meanwhile stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from protocol.client import ClusterClient, ConfigSource
from protocol.types import TopicPartition
from topology.models import Topic
from topology.moves import moves_under_way
from topology.topic_plan import Deed, Step, TopicNow, changes_of
from topology.topics import create_declared_topics


async def topics_now(client: ClusterClient, names: Iterable[str]) -> dict[str, TopicNow]:
    """Those of the topics that are there. Raises ProtocolError."""
    wanted = set(names)
    metadata = await client.metadata(None)
    present = [name for name in metadata.topics if name in wanted]
    described = await client.describe_configs(present) if present else {}
    moves = await moves_under_way(client)

    def replicas(name: str, index: int, now: int) -> int:
        """How many there will be when a move that is under way is done."""
        move = moves.get(TopicPartition(name, index))
        return now if move is None else now - len(move.removing)

    return {
        name: TopicNow(
            len(metadata.topics[name].partitions),
            max(
                (
                    replicas(name, index, len(each.replicas))
                    for index, each in metadata.topics[name].partitions.items()
                ),
                default=0,
            ),
            {
                key: entry.value or ""
                for key, entry in described[name].items()
                if entry.source is ConfigSource.TOPIC and not entry.read_only
            },
            {key: entry.value or "" for key, entry in described[name].items()},
        )
        for name in present
    }


async def apply_steps(client: ClusterClient, declared: Mapping[str, Topic], steps: Iterable[Step]) -> None:
    """New topics first, then partitions, then settings. Raises ProtocolError naming what was refused."""
    steps = list(steps)
    new = {step.topic: declared[step.topic] for step in steps if step.deed is Deed.CREATE}
    if new:
        await create_declared_topics(client, new)
    grown = {step.topic: int(step.wanted or 0) for step in steps if step.deed is Deed.GROW}
    if grown:
        await client.create_partitions(grown)
    if changes := changes_of(steps):
        await client.alter_configs(changes)
