"""A partition that a start finds in two log directories: which of them counts, or why a person has to say.

Three ways lead there. A topic was deleted while one directory was out of use, and made anew under its name:
topic ids differ, and the controller's first order says which is right. A move between directories was
interrupted between its two renames: the new one says so itself (`directory_move`). Anything else is for an
operator: to guess could lose records (Kafka: `LogManager.loadLog`, which refuses to start in every case but
that of a known stray).
"""

from typing import Final

from broker.log import checkpoints
from broker.log.errors import LogDirError
from broker.log.files import read_if_exists
from protocol.types import TopicPartition

MOVED: Final = ".isthmus-moved"
"""In a partition directory that a move has completed, until the directory it came from is gone."""


def topic_id_in(path: str) -> bytes | None:
    return checkpoints.read_topic_id(f"{path}/{checkpoints.PARTITION_METADATA}")


def successor(one: str, other: str) -> str | None:
    """The path of the two that a completed move has put in the place of the other; None without one."""
    moved = [path for path in (one, other) if read_if_exists(f"{path}/{MOVED}") is not None]
    return moved[0] if len(moved) == 1 else None


def refusal(tp: TopicPartition, one: str, other: str) -> LogDirError:
    return LogDirError(
        f"{tp} is in two log directories: {one} and {other}. Which holds the newer records cannot be told"
        " for sure, so the broker does not start. It is most likely the one whose disk did not fail last:"
        " compare both with Kafka's DumpLogSegments. Then move the other out of its log directory, keep it"
        " until you are sure, and start again"
    )
