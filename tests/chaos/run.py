"""One run: brokers, ZooKeeper servers and their network; load; faults; healing; a last reading; the check."""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.checker import Findings, check
from tests.chaos.clients import PARTITIONS
from tests.chaos.directed import CLIENTS, SETTINGS, step_of
from tests.chaos.ending import TOPICS, Ending, wait_whole
from tests.chaos.nemesis import Nemesis
from tests.chaos.person import Person
from tests.chaos.schedule import LANES
from tests.chaos.workload import ORDINARY, Workload
from tests.chaos.world import NUMBERS, World
from tests.support.waiting import wait_until

REPLICAS = "replica_difference"
"""The anomaly that clients do not see: replicas of one partition that hold other bytes."""
_WHOLE_S = 120.0
_STEP_S, _STORY_STEP_S = 30.0, 60.0
"""A story that is all there is may wait longer for each of its steps."""


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
    """`kinds` are the faults to draw from. `broken` names a safety rule to switch off: without `kinds` the
    story that makes it matter is told once, however many `seconds` that takes.
    """
    began = time.monotonic()

    def timed(text: str) -> None:
        say(f"{time.monotonic() - began:7.1f} s  {text}")

    program = ("isthmus",) if broken is None else ("tests.chaos.broken", broken)
    story = None if broken is None or kinds is not None else step_of(broken, seed)
    world = World(
        directory,
        program=program,
        settings=settings if story is None else {**SETTINGS, **(settings or {})},
        zookeepers=len(NUMBERS) if story is None else 1,
        breakable=story is None,
        patience_s=_STEP_S if story is None else _STORY_STEP_S,
        say=timed,
    )
    with contextlib.closing(world):
        world.start()
        _create(world.bootstrap)
        # Longer runs write more slowly, so that the history of an hour has its place in memory.
        pause_s = 0.01 if seconds < 600 else 0.03
        workload = Workload(world.bootstrap, seed, pause_s, CLIENTS if story else ORDINARY)
        workload.start()
        wait_until(lambda: workload.acknowledged > 50, "the first acknowledgements", bound_s=_WHOLE_S)
        timed("faults begin")
        faults_began = time.monotonic()
        person = Person(world.bootstrap, timed)
        nemesis = Nemesis(world, person, seed, kinds=kinds, lanes=lanes)
        if story is None:
            nemesis.run(seconds)
        else:
            nemesis.play(story)
        minutes = (time.monotonic() - faults_began) / 60
        timed("faults are over")
        # A cluster without its rules need not heal.
        ending = Ending(world, workload, person, bound_s=_WHOLE_S if broken is None else _WHOLE_S / 3)
        ending.run()
        timed("all is read")
    if keep_history is not None:
        with keep_history.open("wb") as file:
            pickle.dump(workload.history, file)
    history = workload.history
    findings = {**check(history), REPLICAS: ending.differing}
    return Report(
        seed=seed,
        minutes=round(minutes, 2),
        operations=len(history.sends) + len(history.polls) + len(history.commits),
        acknowledged=workload.acknowledged,
        transactions=len(history.transactions),
        commits=len(history.commits),
        unclean_elections=person.words,
        faults=dict(sorted(nemesis.faults.items())),
        anomalies={name: len(instances) for name, instances in findings.items()},
        failures=nemesis.failures + ending.failures + workload.failures,
        ended=world.ended,
        stuck=workload.stuck,
        examples={name: instances[:10] for name, instances in findings.items() if instances},
    )


def _create(bootstrap: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(topic, PARTITIONS, 3) for topic in TOPICS]
    for future in client.create_topics(new).values():
        future.result(_WHOLE_S)
    wait_whole(bootstrap, _WHOLE_S)
