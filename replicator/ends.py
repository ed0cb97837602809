"""Where a link's partitions end at the source: what has been heard within seconds, and why nothing of others.

Owns asking each broker for its own partitions, so that one that is silent, or a topic that is gone, hides
nothing else. Who asks waits: a source that takes connections and says nothing is not waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from protocol.client import EARLIEST, LATEST, NO_RETRIES, ClusterClient, Isolation
from protocol.counted import counted
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import ZERO_UUID, TopicPartition, uuid_to_text
from replicator.piecemeal import piecemeal
from replicator.settings import ClusterEnd

ANSWER_S = 4.0
_CONNECT_S = 2.0
"""To one address: another may answer then."""
_CLOSING_S = 0.5
"""For what is done once the brokers have been heard."""


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """Where a partition can be read up to, and from; None and why while that is not known."""

    offset: int | None
    state: str = ""
    first: int | None = None


Ends = dict[TopicPartition, SourceEnd]


async def ends_now(
    source: ClusterEnd,
    topic_ids: Mapping[TopicPartition, str],
    *,
    isolation: int = Isolation.READ_COMMITTED,
    answer_s: float = ANSWER_S,
) -> tuple[Ends, str]:
    """Of partitions of topics with these ids, within `answer_s` seconds; and what is not known for which
    reason, in words (empty: all is)."""
    found: Ends = {}
    deadline = asyncio.get_running_loop().time() + answer_s
    try:
        async with (
            asyncio.timeout_at(deadline),
            source.client("isthmus-cli", connect_timeout_s=_CONNECT_S, retry=NO_RETRIES) as client,
        ):
            silent = await source_ends(client, topic_ids, found, deadline, isolation)
    except TimeoutError:
        return found, f"no answer of {source.alias} within {answer_s:g} s"
    except ProtocolError as error:
        return found, str(error)
    brokers = ", ".join(str(node) for node in sorted(silent))
    missing = sum(silent.values())
    return (
        found,
        f"no answer of broker {brokers} of {source.alias}: {counted(missing, 'partition')}" if silent else "",
    )


async def source_ends(
    client: ClusterClient,
    topic_ids: Mapping[TopicPartition, str],
    found: Ends,
    deadline: float,
    isolation: int = Isolation.READ_COMMITTED,
) -> dict[int, int]:
    """Puts the end of each partition into `found`, of no other topic with its name; returns how many
    partitions each broker has said nothing of until shortly before `deadline` (of the loop's clock)."""
    topics = (await client.metadata({tp.topic for tp in topic_ids})).topics if topic_ids else {}
    led: dict[int, list[TopicPartition]] = {}
    for tp, topic_id in topic_ids.items():
        topic = topics.get(tp.topic)
        if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            found[tp] = SourceEnd(None, "deleted at the source")
        elif topic.error:
            found[tp] = SourceEnd(None, f"the source says {topic.error.name}")
        elif topic.topic_id != ZERO_UUID and uuid_to_text(topic.topic_id) != topic_id:
            found[tp] = SourceEnd(None, "created again at the source, not copied yet")
        else:
            at = topic.partitions.get(tp.partition)
            led.setdefault(at.leader if at is not None else -1, []).append(tp)
    silent: dict[int, int] = {}

    async def ask(node: int, tps: list[TopicPartition]) -> None:
        try:
            async with asyncio.timeout_at(deadline - _CLOSING_S):
                offsets, refused = await readable_ends(client, tps, isolation)
                firsts, _ = await log_starts(client, tps)
        except (ProtocolError, TimeoutError):
            silent[node] = len(tps)
            text = f"broker {node} of the source does not answer"
            found.update(dict.fromkeys(tps, SourceEnd(None, text)))
        else:
            found.update({tp: SourceEnd(offset, first=firsts.get(tp)) for tp, offset in offsets.items()})
            found.update({tp: SourceEnd(None, f"the source says {e.code.name}") for tp, e in refused.items()})

    await asyncio.gather(*(ask(*each) for each in led.items()))
    return silent


async def readable_ends(
    client: ClusterClient, tps: Collection[TopicPartition], isolation: int = Isolation.READ_COMMITTED
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]:
    """Offsets behind the last committed record, and why some partitions have none now."""
    return await _listed(client, tps, LATEST, isolation)


async def log_starts(
    client: ClusterClient, tps: Collection[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]:
    """The first offsets that are still there, and why some partitions have none now."""
    return await _listed(client, tps, EARLIEST, Isolation.READ_COMMITTED)


async def _listed(
    client: ClusterClient, tps: Collection[TopicPartition], spot: int, isolation: int
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]:
    async def ask(part: list[TopicPartition]) -> dict[TopicPartition, int]:
        listed = await client.list_offsets(dict.fromkeys(part, spot), isolation=isolation, retry=NO_RETRIES)
        return {tp: at.offset for tp, at in listed.items()}

    return await piecemeal(ask, tps)
