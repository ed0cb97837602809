"""What a runbook can ask. A probe that does not hold raises `NotYet` with what it saw; it is asked again.

Clusters are looked at with a client that gives up quickly: a probe never outlives its own patience by much.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from dr_runbooks.engine import Context
from dr_runbooks.registry import NotYet, Result, StepFailed, probe
from protocol.client import EARLIEST, LATEST, NO_RETRIES, ClusterClient, Committed, ListedOffset
from protocol.client.errors import (
    ConnectError,
    ConnectionLostError,
    RequestTimeoutError,
    TokenError,
    TurnedAwayError,
)
from protocol.counted import counted
from protocol.errors import ProtocolError
from protocol.types import TopicPartition

PATIENCE_S = 3.0


def probe_client(context: Context, cluster: str) -> ClusterClient:
    return context.runtime.access(context.topology, cluster).client(
        "isthmus-drill",
        timeout_s=PATIENCE_S,
        connect_timeout_s=PATIENCE_S,
        retry=NO_RETRIES,
    )


@probe
async def cluster_unreachable(
    context: Context, cluster: str, attempts: Annotated[int, Field(ge=1)] = 3, pause_seconds: float = 0.5
) -> Result:
    """No broker of the cluster answers, several times in a row (not a false alarm).

    One that refuses this client (its user, its certificate) is there: nobody fails over from it.
    """
    for attempt in range(attempts):
        if attempt:
            await asyncio.sleep(pause_seconds)
        try:
            async with probe_client(context, cluster) as client:
                brokers = sorted(client.brokers)
        except (TurnedAwayError, TokenError) as error:
            raise NotYet(f"somebody answers at {cluster}: {error}") from None
        except (ConnectError, ConnectionLostError, RequestTimeoutError):
            continue
        except ProtocolError as error:
            raise StepFailed(f"{cluster} is there, but does not let this client in: {error}") from None
        raise NotYet(f"{cluster} answers (brokers {brokers})")
    return {"cluster": cluster, "attempts": attempts}


@probe
async def cluster_serving(context: Context, cluster: str) -> Result:
    """Every declared broker is registered and every partition has a leader."""
    wanted = {broker.id for broker in context.topology.clusters[cluster].brokers}
    try:
        async with probe_client(context, cluster) as client:
            metadata = await client.metadata(None)
    except ProtocolError as error:
        raise NotYet(str(error)) from None
    if not wanted <= metadata.brokers.keys():
        raise NotYet(f"brokers missing: {sorted(wanted - metadata.brokers.keys())}")
    leaderless = [
        f"{topic.name}-{index}"
        for topic in metadata.topics.values()
        for index, partition in topic.partitions.items()
        if partition.leader < 0
    ]
    if leaderless:
        raise NotYet(f"{counted(len(leaderless), 'partition')} without a leader: {', '.join(leaderless[:5])}")
    return {"brokers": sorted(metadata.brokers), "topics": len(metadata.topics)}


@probe
async def group_offsets_valid(context: Context, cluster: str, group: str, topics: list[str]) -> Result:
    """The group has an offset for each partition of these topics that holds records, inside the log."""
    try:
        async with probe_client(context, cluster) as client:
            found = (await client.metadata(topics)).topics
            if missing := [name for name in topics if name not in found or found[name].error]:
                raise NotYet(f"{cluster} has no topic {', '.join(missing)}")
            spots = [TopicPartition(name, index) for name in topics for index in found[name].partitions]
            committed = await client.committed(group, spots)
            starts = await client.list_offsets(dict.fromkeys(spots, EARLIEST))
            ends = await client.list_offsets(dict.fromkeys(spots, LATEST))
    except ProtocolError as error:
        raise NotYet(str(error)) from None
    without = [spot for spot in spots if spot not in committed and starts[spot].offset < ends[spot].offset]
    if without or not committed:
        names = ", ".join(f"{spot.topic}-{spot.partition}" for spot in without) or ", ".join(topics)
        raise NotYet(f"group {group} has no committed offset in {cluster} for {names}")
    outside = _outside(committed, starts, ends)
    if outside:
        raise NotYet(f"offsets outside the data: {', '.join(outside)}")
    lag = sum(ends[spot].offset - offset.offset for spot, offset in committed.items())
    return {"partitions": len(committed), "of": len(spots), "records_to_read": lag}


def _outside(
    committed: Mapping[TopicPartition, Committed],
    starts: Mapping[TopicPartition, ListedOffset],
    ends: Mapping[TopicPartition, ListedOffset],
) -> list[str]:
    return [
        f"{spot.topic}-{spot.partition}: {offset.offset} not in {starts[spot].offset}…{ends[spot].offset}"
        for spot, offset in committed.items()
        if not starts[spot].offset <= offset.offset <= ends[spot].offset
    ]


@probe
async def group_active(context: Context, cluster: str, group: str) -> Result:
    """The group has members and is stable."""
    try:
        async with probe_client(context, cluster) as client:
            described = (await client.describe_groups([group]))[group]
    except ProtocolError as error:
        raise NotYet(str(error)) from None
    if described.state != "Stable":
        raise NotYet(f"group {group} in {cluster} is {described.state}")
    return {"members": len(described.members)}
