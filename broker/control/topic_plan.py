"""Checks of a wanted topic, and what will be written for it. Pure: what exists and who is alive come in.

Every refusal is a KafkaError with Kafka's code and a text that names the topic and the setting or number.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from broker.config import BrokerConfig, ConfigError
from broker.control.assignment import Candidate, NotEnoughBrokers, RacksMissing, place
from broker.control.topic_rules import collision, is_internal, wrong_name
from protocol.errors import ErrorCode, KafkaError

DEFAULT = -1
"""Partitions or replicas "as the broker's settings say" (KIP-464)."""

MAX_NEW_PARTITIONS = 10_000
"""Most partitions that one request may make (Kafka's limit): a number is four bytes, they cost memory."""

Assignment = Mapping[int, tuple[int, ...]]


class Wanted(NamedTuple):
    """A topic as somebody asked for it."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    configs: Mapping[str, str] = {}
    assignment: Assignment | None = None


def check_name(name: str, existing: Sequence[str]) -> None:
    """Raises KafkaError for a name that cannot be had."""
    complaint = wrong_name(name)
    if complaint is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, complaint)
    if name in existing:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
    other = collision(name, existing)
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name!r} collides with {other!r}: '.' and '_' are the same in names of metrics",
        )


def check_configs(name: str, config: BrokerConfig, configs: Mapping[str, str]) -> None:
    """Raises KafkaError naming every wrong setting."""
    try:
        config.topic_config(configs)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"topic {name!r}: {error}") from error


def plan_assignment(wanted: Wanted, config: BrokerConfig, alive: Sequence[Candidate]) -> Assignment:
    """Replicas by partition of a new topic. Raises KafkaError."""
    if wanted.assignment is not None:
        if (wanted.partitions, wanted.replication_factor) != (DEFAULT, DEFAULT):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"topic {wanted.name!r}: give numbers of partitions and replicas or an assignment, not both",
            )
        check_assignment(wanted.name, wanted.assignment, 0, None, alive)
        return wanted.assignment
    partitions = config.num_partitions if wanted.partitions == DEFAULT else wanted.partitions
    factor = wanted.replication_factor
    factor = config.default_replication_factor if factor == DEFAULT else factor
    if partitions <= 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {wanted.name!r}: number of partitions must be larger than 0, not {partitions}",
        )
    if factor <= 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {wanted.name!r}: replication factor must be larger than 0, not {factor}",
        )
    check_number(partitions)
    return _placed(wanted.name, alive, partitions, factor, 0, None)


def plan_growth(
    name: str,
    current: Assignment,
    count: int,
    assignment: Sequence[Sequence[int]] | None,
    alive: Sequence[Candidate],
) -> Assignment:
    """Replicas of the partitions to add, so that there are `count`. Raises KafkaError."""
    existing = len(current)
    if count == existing:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"topic {name!r} already has {count} partitions")
    if count < existing:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name!r} has {existing} partitions: {count} would not be an increase",
        )
    check_number(count - existing)
    factor = len(current[min(current)])
    if assignment is not None:
        if len(assignment) != count - existing:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"topic {name!r}: {count - existing} partitions are added, {len(assignment)} are assigned",
            )
        wanted = {existing + number: tuple(replicas) for number, replicas in enumerate(assignment)}
        check_assignment(name, wanted, existing, factor, alive)
        return wanted
    leader = current[min(current)][0]
    numbers = sorted(item.broker_id for item in alive)
    start = numbers.index(leader) if leader in numbers else 0
    return _placed(name, alive, count - existing, factor, existing, start)


def check_number(new_partitions: int) -> None:
    """Raises KafkaError for more new partitions than one request may make."""
    if new_partitions > MAX_NEW_PARTITIONS:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{new_partitions} new partitions in one request, at most {MAX_NEW_PARTITIONS} are possible",
        )


def check_assignment(
    name: str, assignment: Assignment, first: int, factor: int | None, alive: Sequence[Candidate]
) -> None:
    """Raises KafkaError for an assignment given by hand that cannot be."""

    def refuse(text: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"topic {name!r}: {text}")

    if sorted(assignment) != list(range(first, first + len(assignment))) or not assignment:
        raise refuse(f"partitions must be numbered from {first} without a gap, not {sorted(assignment)}")
    living = {item.broker_id for item in alive}
    factor = len(assignment[first]) if factor is None else factor
    for partition, replicas in assignment.items():
        if not replicas or len(set(replicas)) != len(replicas):
            raise refuse(f"partition {partition} names a broker twice or none: {list(replicas)}")
        if len(replicas) != factor:
            raise refuse(f"partition {partition} has {len(replicas)} replicas, others have {factor}")
        unknown = sorted(set(replicas) - living)
        if unknown:
            raise refuse(f"partition {partition} names broker {unknown[0]}, which is not alive")


def refuse_internal(name: str) -> None:
    """Raises KafkaError for a topic that belongs to the broker itself."""
    if is_internal(name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name!r} is the broker's own: only brokers make or delete it",
        )


def _placed(
    name: str, alive: Sequence[Candidate], partitions: int, factor: int, first: int, start: int | None
) -> Assignment:
    try:
        return place(alive, partitions, factor, first_partition=first, start=start)
    except (NotEnoughBrokers, RacksMissing) as error:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, f"topic {name!r}: {error}") from error
