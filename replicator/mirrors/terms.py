"""Terms of mirrors, and what their leaders know of the topic: asked for many partitions at once.

Owns raising terms, what is done once in a term, and waiting until all leaders have heard what the controller
wrote. What is done to thousands of partitions is done some hundred at a time, and says how far it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeVar

from protocol.client import NO_RETRIES, ClusterClient, RetryPolicy
from protocol.client.mirror_calls import MirrorStand, Settling
from protocol.client.retry import retrying
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition

T = TypeVar("T")

AT_ONCE: Final = 250
_SEEN: Final = RetryPolicy(total_s=15)


async def raised(
    client: ClusterClient, texts: Mapping[TopicPartition, str], least: Mapping[TopicPartition, int]
) -> dict[TopicPartition, MirrorStand]:
    """The mirrors in `least`, once their leaders are in terms of at least these epochs. Raises
    ProtocolError."""
    await client.raise_mirrors(least)
    found: dict[TopicPartition, MirrorStand] = {}

    async def seen() -> None:
        stands = await client.mirror_stands({tp: texts[tp] for tp in least if tp not in found})
        found.update((tp, stand) for tp, stand in stands.items() if stand.leader_epoch >= least[tp])
        behind = least.keys() - found.keys()
        if behind:
            tp = min(behind)
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{tp}: term {least[tp]} has not begun yet")

    await retrying(seen, _SEEN)
    return found


async def settled(
    client: ClusterClient,
    texts: Mapping[TopicPartition, str],
    stands: Mapping[TopicPartition, MirrorStand],
    cuts: Mapping[TopicPartition, int] | None = None,
) -> int:
    """Ends mirrors, or cuts them to offsets, in the terms of `stands`, or in later ones that an election has
    begun meanwhile: nothing is written in those either. How many transactions were aborted, as far as the
    last try knows. Raises ProtocolError."""
    terms = {tp: stand.leader_epoch for tp, stand in stands.items()}

    async def once() -> int:
        try:
            wanted = {
                tp: Settling(texts[tp], term) if cuts is None else Settling(texts[tp], term, cuts[tp])
                for tp, term in terms.items()
            }
            done = await client.settle_mirrors(wanted, retry=NO_RETRIES)
        except KafkaError:
            now = await client.mirror_stands({tp: texts[tp] for tp in terms})
            terms.update((tp, max(term, now[tp].leader_epoch)) for tp, term in terms.items())
            raise
        return sum(each.aborted for each in done.values())

    return await retrying(once, client.retry)


async def told(
    client: ClusterClient,
    texts: Mapping[TopicPartition, str],
    is_told: Callable[[MirrorStand | BaseException], bool],
    policy: RetryPolicy,
) -> None:
    """Until `is_told` holds for what all of their leaders answer. Raises the error of one that did not, at
    once where a whole broker cannot be asked for good."""
    left = dict(texts)

    async def ask() -> None:
        answers = await client.ask_mirrors(left)
        for tp, answer in answers.items():
            if is_told(answer):
                del left[tp]
        for tp in left:
            error = answers.get(tp)
            if isinstance(error, BaseException) and not isinstance(error, KafkaError):
                raise error
        if left:
            tp = min(left)
            text = f"{tp}: its leader has not heard yet: {answers.get(tp)}"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)

    await retrying(ask, policy)


def portions(items: Collection[T], at_once: int = AT_ONCE) -> Iterator[list[T]]:
    """In their order."""
    listed = list(items)
    return (listed[start : start + at_once] for start in range(0, len(listed), at_once))
