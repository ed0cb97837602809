"""A partition that a start finds in two log directories: which of them counts, or why a person has to say.

A topic may have been deleted while one directory was out of use, and made anew under its name: the topic ids
differ then, and the controller's first order says which is right. Anything else is for an operator: to guess
could lose records. (Kafka: `LogManager.loadLog`, which refuses every case but that of a known stray.)
"""

from broker.log import checkpoints
from broker.log.errors import LogDirError
from protocol.types import TopicPartition


def topic_id_in(path: str) -> bytes | None:
    return checkpoints.read_topic_id(f"{path}/{checkpoints.PARTITION_METADATA}")


def refusal(tp: TopicPartition, one: str, other: str) -> LogDirError:
    return LogDirError(
        f"{tp} is in two log directories: {one} and {other}. Which holds the newer records cannot be told"
        " for sure, so the broker does not start. It is most likely the one whose disk did not fail last:"
        " compare both with Kafka's DumpLogSegments. Then move the other out of its log directory, keep it"
        " until you are sure, and start again"
    )
