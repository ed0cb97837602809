"""One run: brokers, ZooKeeper servers and their network; load; faults; healing; a last reading; the check."""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.chaos.checker import Findings, check
from tests.chaos.clients import INPUT, OUTPUT, PARTITIONS
from tests.chaos.history import Place
from tests.chaos.nemesis import Nemesis
from tests.chaos.person import Person
from tests.chaos.reading import read_all
from tests.chaos.replicas import differences
from tests.chaos.schedule import LANES
from tests.chaos.workload import Workload
from tests.chaos.world import World
from tests.support.waiting import wait_until

TOPICS = (INPUT, OUTPUT)
REPLICAS = "replica_difference"
"""The anomaly that clients do not see: replicas of one partition that hold other bytes."""
_WHOLE_S = 120.0


@dataclass(slots=True)
class Report:
    """`anomalies` by name; `faults` by kind; `failures` are of the harness, or a cluster that does not heal.

    `ended` are brokers that ended by themselves, `stuck` clients whose library did not come back from a call,
    `unclean_elections` partitions that waited for a person's word.
    """

    seed: int
    minutes: float
    operations: int = 0
    acknowledged: int = 0
    transactions: int = 0
    commits: int = 0
    unclean_elections: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    anomalies: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    examples: Findings = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        return not self.failures and not any(self.anomalies.values())

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def run(
    directory: Path,
    *,
    seed: int,
    seconds: float,
    kinds: Sequence[str] | None = None,
    lanes: int = LANES,
    settings: Mapping[str, str] | None = None,
    broken: str | None = None,
    keep_history: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """`broken` names a safety rule to switch off, `kinds` the faults to draw from."""
    began = time.monotonic()

    def timed(text: str) -> None:
        say(f"{time.monotonic() - began:7.1f} s  {text}")

    program = ("isthmus",) if broken is None else ("tests.chaos.broken", broken)
    world = World(directory, program=program, settings=settings, say=timed)
    with contextlib.closing(world):
        world.start()
        _create(world.bootstrap)
        # Longer runs write more slowly, so that the history of an hour has its place in memory.
        workload = Workload(world.bootstrap, seed, pause_s=0.01 if seconds < 600 else 0.03)
        workload.start()
        wait_until(lambda: workload.acknowledged > 50, "the first acknowledgements", bound_s=_WHOLE_S)
        timed("faults begin")
        person = Person(world.bootstrap, timed)
        nemesis = Nemesis(world, person, seed, kinds=kinds, lanes=lanes)
        nemesis.run(seconds)
        timed("faults are over")
        failures = list(nemesis.failures)
        differing: list[str] = []
        try:
            _finish(world, workload, person)
            places = [Place(topic, each) for topic in TOPICS for each in range(PARTITIONS)]
            differing = differences(world.logs, places)
        except (AssertionError, KafkaException) as error:
            failures.append(f"after the faults: {error}")
        timed("all is read")
    if keep_history is not None:
        with keep_history.open("wb") as file:
            pickle.dump(workload.history, file)
    history = workload.history
    findings = {**check(history), REPLICAS: differing} if history.log else {}
    return Report(
        seed=seed,
        minutes=round(seconds / 60, 2),
        operations=len(history.sends) + len(history.polls) + len(history.commits),
        acknowledged=workload.acknowledged,
        transactions=len(history.transactions),
        commits=len(history.commits),
        unclean_elections=person.words,
        faults=dict(sorted(nemesis.faults.items())),
        anomalies={name: len(instances) for name, instances in findings.items()},
        failures=failures + workload.failures,
        ended=world.ended,
        stuck=workload.stuck,
        examples={name: instances[:10] for name, instances in findings.items() if instances},
    )


def _finish(world: World, workload: Workload, person: Person) -> None:
    """Everything is whole again, and the log is read. Raises AssertionError when it does not come to that."""
    world.heal()
    person.help()
    wait_whole(world.bootstrap)
    before = workload.acknowledged
    try:
        wait_until(lambda: workload.acknowledged > before, "acknowledgements after healing", bound_s=_WHOLE_S)
    finally:
        workload.stop()
    wait_until(lambda: _stable(world.bootstrap), "no transaction is open any more", bound_s=_WHOLE_S)
    history = workload.history
    for committed_only in (False, True):
        found = {
            place: records
            for topic in TOPICS
            for place, records in read_all(world.bootstrap, topic, committed_only=committed_only).items()
        }
        if committed_only:
            history.committed = found
        else:
            history.log = found


def _create(bootstrap: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(topic, PARTITIONS, 3) for topic in TOPICS]
    for future in client.create_topics(new).values():
        future.result(60)
    wait_whole(bootstrap)


def wait_whole(bootstrap: str) -> None:
    """Every replica of the topics is in sync. Raises AssertionError."""
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": 5000})
    seen: dict[str, object] = {}

    def whole() -> bool:
        with contextlib.suppress(KafkaException):
            for topic in TOPICS:
                known = client.list_topics(topic, timeout=10).topics[topic].partitions
                seen[topic] = {each: (known[each].leader, sorted(known[each].isrs)) for each in known}
                if len(known) != PARTITIONS or any(len(each.isrs) != 3 for each in known.values()):
                    return False
            return True
        return False

    try:
        wait_until(whole, "every replica in sync", bound_s=_WHOLE_S)
    except AssertionError as error:
        raise AssertionError(f"{error}; leaders and in-sync replicas: {seen}") from None


def _stable(bootstrap: str) -> bool:
    """Transactions of producers that are gone end by their timeout; then all up to the end is readable."""
    try:
        ends = [_read_ends(bootstrap, committed=each) for each in (False, True)]
    except KafkaException:  # a leader has just changed
        return False
    return ends[0] == ends[1]


def _read_ends(bootstrap: str, *, committed: bool) -> list[int]:
    client = AdminClient({"bootstrap.servers": bootstrap})
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked = {
        TopicPartition(topic, each): OffsetSpec.latest() for topic in TOPICS for each in range(PARTITIONS)
    }
    answers = client.list_offsets(asked, isolation_level=level)
    return [future.result(30).offset for future in answers.values()]
