"""One run: a source, its mirror, clients that follow the roles; faults, and who changes roles; the verdict.

In the end both sides have to hold the same bytes, and `isthmus audit` looks at the link that copies then.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from protocol.errors import ProtocolError
from protocol.records import decode_batches
from tests.chaos.links.auditing import audited
from tests.chaos.links.breaking import Breaking
from tests.chaos.links.history import name_of
from tests.chaos.links.load import read_all
from tests.chaos.links.schedule import LANES
from tests.chaos.links.world import SIDES
from tests.chaos.mirrors.comparing import differing, sizes
from tests.chaos.mirrors.faults import FAULTS, OFTEN
from tests.chaos.mirrors.history import History, Place, now_ms
from tests.chaos.mirrors.judge import ANOMALIES, Cut, judge
from tests.chaos.mirrors.load import GROUPS, Load
from tests.chaos.mirrors.operator import GivenUp, Operator, saved_files
from tests.chaos.mirrors.topics import KEEPS, End, keeps
from tests.chaos.mirrors.way_back import KafkaOperator
from tests.chaos.mirrors.world import MirrorWorld
from tests.support.waiting import wait_until

TOPICS = {name: keeps.partitions for name, keeps in KEEPS.items()}
_GROUPS_S = 120.0


@dataclass(slots=True)
class Report:
    """`anomalies` by name (`judge`), `failures` of the harness, or sides that do not come together. `saved`
    and `given_up` are what failovers cost: acknowledged, and told. `let_go` is gone by rules of its topic."""

    seed: int
    minutes: float = 0.0
    records: int = 0
    acknowledged: int = 0
    transactions: int = 0
    seen: int = 0
    saved: int = 0
    given_up: int = 0
    let_go: int = 0
    unclean_elections: int = 0
    acts: dict[str, int] = field(default_factory=dict)
    killed_commands: int = 0
    refusals: dict[str, int] = field(default_factory=dict)
    """What commands said that changed nothing or did not come to an end, and were run again."""
    faults: dict[str, int] = field(default_factory=dict)
    anomalies: dict[str, int] = field(default_factory=dict)
    audit: dict[str, Any] = field(default_factory=dict)
    exit_codes: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    stuck: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        audited = self.audit.get("exit_code", 0) == 0
        return not self.failures and audited and not any(self.anomalies.values())

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def run(
    directory: Path,
    *,
    seed: int,
    seconds: float,
    kinds: Sequence[str] | None = None,
    lanes: int = LANES,
    acts: Collection[str] = (),
    program: Sequence[str] = ("isthmus",),
    apache: bool = False,
    audit: bool = True,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """`program` is what the operator's commands and the links run (`broken`: with a rule switched off).
    `apache`: the first source is Apache Kafka."""
    began = time.monotonic()
    world = MirrorWorld(
        directory,
        program=program,
        apache=SIDES[0] if apache else None,
        say=lambda text: say(f"{time.monotonic() - began:7.1f} s  {text}"),
    )
    with contextlib.closing(world):
        return _Run(world, seed, acts).whole(seconds, kinds, lanes, audit=audit)


class _Run:
    def __init__(self, world: MirrorWorld, seed: int, acts: Collection[str]) -> None:
        self._world = world
        self._seed = seed
        self._history = History()
        kind = Operator if world.apache is None else KafkaOperator
        self._operator = kind(world, self._history, seed, acts)
        self._breaking = Breaking(world, seed, FAULTS, OFTEN)
        self._report = Report(seed)

    def whole(self, seconds: float, kinds: Sequence[str] | None, lanes: int, *, audit: bool) -> Report:
        world, report = self._world, self._report
        world.begin(TOPICS)
        load = Load(
            {side: world.bootstrap(side) for side in SIDES},
            lambda: "" if world.resting else world.active,
            lambda: world.written,
            world.life,
            self._history,
            self._seed,
            pause_s=0.2 if seconds < 900 else 0.4,
        )
        world.is_quiet, world.sent = load.is_quiet, lambda: self._history.sent
        load.start()
        wait_until(lambda: len(self._history.acknowledged) > 50, "the first records", bound_s=300)
        wait_until(lambda: len(world.mirrors(world.other) or ()) == len(TOPICS), "the mirrors", bound_s=300)
        with self._breaking.helped():
            world.say("faults begin")
            faults_began = time.monotonic()
            self._break(seconds, kinds, lanes)
            report.minutes = round((time.monotonic() - faults_began) / 60, 2)
            world.say("faults are over")
            try:
                world.heal()
                load.threads.stop_writing()
                self._verdict(load)
            except (AssertionError, KafkaException, ProtocolError, TimeoutError) as error:
                report.failures.append(f"{error!r}"[:2000])
            load.threads.stop()
            report.stuck += load.threads.stuck
            if audit:
                # What lets go of records has gaps, where a link was too slow.
                whole = [topic for topic in world.written if keeps(topic).is_all]
                report.audit = audited(world, world.link, whole)
        report.exit_codes = world.end_links()
        report.faults = dict(sorted(self._breaking.done.items()))
        report.failures += self._breaking.failed
        report.unclean_elections = self._breaking.words
        report.ended = dict(world.ended)
        report.acts = dict(self._operator.acts)
        report.refusals = dict(self._operator.refusals)
        report.killed_commands = self._operator.killed
        report.acknowledged = len(self._history.acknowledged)
        report.transactions = self._history.transactions
        report.seen = len(self._history.seen)
        return report

    # -- faults

    def _break(self, seconds: float, kinds: Sequence[str] | None, lanes: int) -> None:
        over = threading.Event()
        acting = threading.Thread(target=self._act, args=(over,), name="operator")
        acting.start()
        self._breaking.run(seconds, kinds, lanes)
        over.set()
        acting.join()

    def _act(self, over: threading.Event) -> None:
        try:
            self._operator.work(over)
        except GivenUp as error:
            self._report.failures.append(f"no end of: {error}")
        except Exception as error:
            self._report.failures.append(f"operator: {error!r}")

    # -- the end

    def _verdict(self, load: Load) -> None:
        world, report = self._world, self._report
        here, there = world.bootstrap(world.active), world.bootstrap(world.other)
        wrong = asyncio.run(differing(here, there, world.written))
        world.say("both sides are the same" if not wrong else f"not the same: {wrong}")
        deadline = time.monotonic() + _GROUPS_S
        while self._unread() and time.monotonic() < deadline:  # the judge says what is missing
            time.sleep(1)
        load.threads.stop()
        stored = self._content("read_uncommitted")
        end = End(now_ms(), self._bytes(), world.trimmed, frozenset(world.deleted), world.remade)
        # What went meanwhile is not asked for: readers of both contents are not at one moment.
        committed = self._content("read_committed")
        found = judge(committed, stored, self._cuts(), self._history, GROUPS, end, world.lives_before())
        found.anomalies["differing"] = wrong
        found.anomalies["cut"] = self._operator.wrong
        report.records = sum(map(len, committed.values()))
        report.saved, report.given_up, report.let_go = found.saved, found.given_up, found.let_go
        report.anomalies = {name: len(found.anomalies[name]) for name in ANOMALIES}
        report.examples = {name: some[:10] for name, some in found.anomalies.items() if some}

    def _unread(self) -> bool:
        """Whether a group has not read something that is there; more of it may go at any time."""
        there = {name for rows in self._content("read_committed").values() for _, name in rows}
        return not all(there <= set(self._history.read[group]) for group in GROUPS)

    def _bytes(self) -> dict[Place, int]:
        return asyncio.run(sizes(self._world.bootstrap(self._world.active), self._world.written))

    def _content(self, isolation: str) -> dict[Place, list[tuple[int, bytes]]]:
        bootstrap = self._world.bootstrap(self._world.active)
        return {
            (topic, partition): [
                (offset, row[0]) for offset, row in read_all(bootstrap, topic, partition, isolation=isolation)
            ]
            for topic, count in self._world.written.items()
            for partition in range(count)
        }

    def _cuts(self) -> list[Cut]:
        sides = {self._world.cluster_id(side): side for side in SIDES}
        return [
            Cut(
                sides[each["cluster"]],
                (each["topic"], each["partition"]),
                cut_from(each),
                each["to_offset"],
                frozenset(_names(each["path"])),
            )
            for each in saved_files(self._operator.saved_to)
        ]


def cut_from(saved: Mapping[str, Any]) -> int:
    """Where both sides parted, which is the file's name up to its first dot (a number follows where a killed
    command had begun that file), though retention had let go of what came first."""
    parted, first = int(saved["path"].name.partition(".")[0]), int(saved["from_offset"])
    return first if keeps(saved["topic"]).is_all else min(parted, first)


def _names(path: Path) -> list[bytes]:
    return [name_of(bytes(record.value or b"")) for record in decode_batches(path.read_bytes())]
