"""Where replicas are placed, beside Apache Kafka's own rule (`AdminUtils` of 3.9, the last with ZooKeeper).

Without racks both give the same brokers. With racks ours spreads at least as well: a partition touches as
many racks as Kafka's does, and where there are more replicas than racks none gets two more than another.
"""

import random
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import pytest

from broker.control.assignment import Candidate, place
from tests.support.kafka_directories import BEFORE_4, earlier_kafka, environment
from tests.support.slow import slow

pytestmark = [
    pytest.mark.interop,
    slow("starts Java"),
]
PROGRAM = Path(__file__).with_name("Assignments.java")
Wanted = tuple[list[Candidate], int, int, int]
Placed = list[tuple[int, ...]]


def kafkas(wanted: Sequence[Wanted]) -> list[Placed]:
    earlier_kafka()
    lines = [
        f"{partitions} {factor} {start} "
        + " ".join(f"{each.broker_id}:{each.rack or '-'}" for each in brokers)
        for brokers, partitions, factor, start in wanted
    ]
    libraries = Path(environment(BEFORE_4)["INTEROP_HOME"], "libs")
    command = ["java", "-cp", f"{libraries}/*", str(PROGRAM)]
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=120, check=True
    )
    return [
        [tuple(map(int, replicas.split(","))) for replicas in line.split()]
        for line in done.stdout.splitlines()
    ]


def ours(wanted: Wanted) -> Placed:
    brokers, partitions, factor, start = wanted
    placed: Mapping[int, tuple[int, ...]] = place(brokers, partitions, factor, start=start)
    return [placed[index] for index in range(partitions)]


def test_without_racks_both_place_alike() -> None:
    wanted: list[Wanted] = [
        ([Candidate(number * 3 + 1) for number in range(count)], 25, factor, start)
        for count in range(1, 9)
        for factor in range(1, count + 1)
        for start in (0, 1, count - 1)
    ]
    for case, theirs in zip(wanted, kafkas(wanted), strict=True):
        assert ours(case) == theirs, case


def test_with_racks_ours_spreads_no_worse() -> None:
    draw = random.Random(7)
    wanted: list[Wanted] = []
    for racks in range(1, 5):
        for each in range(1, 4):
            brokers = [Candidate(number, f"r{number % racks}") for number in range(racks * each)]
            draw.shuffle(brokers)
            wanted += [(brokers, 24, factor, draw.randrange(9)) for factor in range(1, len(brokers) + 1)]
    for case, theirs in zip(wanted, kafkas(wanted), strict=True):
        rack_of = {each.broker_id: each.rack for each in case[0]}
        mine = ours(case)
        for mine_of_one, other in zip(mine, theirs, strict=True):
            used = Counter(rack_of[each] for each in mine_of_one)
            assert len(used) >= len({rack_of[each] for each in other}), case
            assert max(used.values()) - min(used[each] for each in set(rack_of.values())) <= 1, case
        leaders = [[each[0] for each in placed] for placed in (mine, theirs)]
        assert _unevenness(leaders[0], rack_of) <= max(1, _unevenness(leaders[1], rack_of)), case
        replicas = [list(chain.from_iterable(placed)) for placed in (mine, theirs)]
        odd = case[2] > len(set(rack_of.values()))  # even over racks costs a replica of evenness over brokers
        assert _unevenness(replicas[0], rack_of) <= max(1, _unevenness(replicas[1], rack_of)) + odd, case


def _unevenness(brokers: Sequence[int], known: Mapping[int, str | None]) -> int:
    counts = Counter(brokers)
    return max(counts[each] for each in known) - min(counts[each] for each in known)
