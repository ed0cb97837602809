"""One run: two clusters and the links between them; load; faults; healing; draining; the verdicts.

Two judges look at what is left: `judge` by the records themselves, and the product's own audit on Spark,
which goes by the links' ledgers.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from protocol.client import ClusterClient, RetryPolicy
from protocol.errors import ProtocolError
from replicator.drain import wait_drained
from replicator.progress import read_ledgers
from tests.chaos.links import holes
from tests.chaos.links.auditing import audited
from tests.chaos.links.breaking import Breaking
from tests.chaos.links.faults import FAULTS
from tests.chaos.links.history import History, Place
from tests.chaos.links.judge import ANOMALIES, Findings, inexact, judge
from tests.chaos.links.load import Load, Row, read_all
from tests.chaos.links.losing import HIDDEN
from tests.chaos.links.one_name import SETTINGS as ONE_NAME
from tests.chaos.links.one_name import circled, of_origin
from tests.chaos.links.schedule import LANES, LETTING_GO, LOSING, WEIGHTS
from tests.chaos.links.world import LINKS, SIDES, LinkWorld, ends
from tests.chaos.mirrors.topics import BROKERS, KEEPS
from tests.support.waiting import wait_until
from transfer.ledger import Gap

TOPICS = {"load-a": 3, "load-b": 1}
COMPACTED = "load-keys"
"""Beside them, where sources let go of records."""
_DRAIN_S = 300.0
_HEALS = RetryPolicy(total_s=120.0)
_GROUPS_S = 90.0


@dataclass(slots=True)
class Report:
    """`anomalies` by name (`judge`), `audit` what Spark counted by link; `failures` are of the harness, or
    clusters that do not heal. `ended` are processes that ended by themselves, and how often."""

    seed: int
    minutes: float
    workers: int
    records: int = 0
    acknowledged: int = 0
    transactions: int = 0
    positions_checked: int = 0
    missed: int = 0
    """Acknowledged records that a source has let go of before a link read them, as its gaps say."""
    unclean_elections: int = 0
    """Partitions that waited for a person's word, and got it from one who had asked all replicas."""
    faults: dict[str, int] = field(default_factory=dict)
    anomalies: dict[str, int] = field(default_factory=dict)
    audit: dict[str, dict[str, Any]] = field(default_factory=dict)
    exit_codes: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    stuck: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    examples: Findings = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        return not self.failures and not any(self.anomalies.values())

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def run(
    directory: Path,
    *,
    seed: int,
    seconds: float,
    kinds: Sequence[str] | None = None,
    lanes: int = LANES,
    workers: int = 1,
    program: Sequence[str] = ("isthmus",),
    link_settings: Mapping[str, object] | None = None,
    one_name: bool = False,
    letting_go: bool = False,
    losing: bool = False,
    apache: str | None = None,
    audit: bool = True,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """`program` runs the links (`broken`: with a rule switched off); the side `apache` is Apache Kafka.
    `one_name`: topics have the same names on both sides, and both write to them (`one_name`).
    `letting_go`: records are deleted at the sources, some before a link has read them (`holes`). `losing`:
    unclean elections take acknowledged records of mirrors away (`losing`)."""
    began = time.monotonic()
    world = LinkWorld(
        directory,
        program=program,
        workers=workers,
        link_settings={**(ONE_NAME if one_name else {}), **(link_settings or {})},
        apache=apache,
        broker_settings=BROKERS if letting_go else None,
        say=lambda text: say(f"{time.monotonic() - began:7.1f} s  {text}"),
    )
    with contextlib.closing(world):
        often = LETTING_GO if letting_go else LOSING if losing else WEIGHTS
        modes = {"one_name": one_name, "letting_go": letting_go, "losing": losing}
        return _Run(world, seed, workers, often, **modes).whole(seconds, kinds, lanes, audit=audit)


class _Run:
    def __init__(
        self,
        world: LinkWorld,
        seed: int,
        workers: int,
        often: Mapping[str, int],
        *,
        one_name: bool,
        letting_go: bool,
        losing: bool,
    ) -> None:
        self._world = world
        self._letting_go = letting_go
        self._losing = losing
        self._one_name = one_name
        self._seed = seed
        self._history = History()
        self._breaking = Breaking(world, seed, FAULTS, often)
        self._report = Report(seed, 0, workers)

    def whole(self, seconds: float, kinds: Sequence[str] | None, lanes: int, *, audit: bool) -> Report:
        world, report = self._world, self._report
        topics = dict(TOPICS)
        if self._letting_go:
            topics[COMPACTED] = KEEPS[COMPACTED].partitions
            world.topic_settings[COMPACTED] = KEEPS[COMPACTED].settings
        world.start(topics)
        loads = [self._load(side, seconds) for side in SIDES]
        for load in loads:
            load.start()
        wait_until(lambda: len(self._history.acknowledged) > 50, "the first records", bound_s=300)
        if self._letting_go:
            self._drain()  # what is gone before a link's first start is no gap of it
        with self._breaking.helped():
            world.say("faults begin")
            faults_began = time.monotonic()
            self._breaking.run(seconds, kinds, lanes)
            report.minutes = round((time.monotonic() - faults_began) / 60, 2)
            world.say("faults are over")
            try:
                world.heal()
                for load in loads:
                    load.threads.stop_writing()
                self._drain()
                world.say("drained")
                self._verdict(loads)
            except (AssertionError, KafkaException, ProtocolError, TimeoutError) as error:
                report.failures.append(f"{error!r}"[:2000])
            for load in loads:
                load.threads.stop()
                report.stuck += load.threads.stuck
            if audit:
                self._audit()
        report.exit_codes = world.end_links()
        report.faults = dict(sorted(self._breaking.done.items()))
        report.failures += self._breaking.failed
        report.unclean_elections = self._breaking.words
        report.ended = dict(world.ended)
        report.acknowledged = len(self._history.acknowledged)
        report.transactions = self._history.transactions
        report.positions_checked = len(self._history.shown)
        return report

    def _load(self, side: str, seconds: float) -> Load:
        world = self._world
        other = next(each for each in SIDES if each != side)
        return Load(
            side,
            other,
            world.bootstrap(side),
            world.bootstrap(other),
            lambda: world.topics[side],
            self._history,
            self._seed,
            # Longer runs write more slowly, so that an hour has its place in memory.
            pause_s=0.2 if seconds < 900 else 0.4,
            one_name=self._one_name,
            watches_groups=not (self._one_name or self._letting_go),
        )

    # -- the end

    def _drain(self) -> None:
        """Until the ledgers of both links have arrived at the sources' ends. Raises AssertionError."""

        async def one(link: str) -> None:
            source, target = ends(link)
            async with (
                ClusterClient(self._world.bootstrap(source), first_contact=_HEALS) as here,
                ClusterClient(self._world.bootstrap(target), first_contact=_HEALS) as there,
            ):
                topics = sorted(self._world.topics[source])
                drained = await wait_drained(here, there, link, topics, _DRAIN_S)
            assert drained.done, f"{link} is not drained: {drained.left}"
            assert self._letting_go or not drained.gaps, f"{link} has {drained.gaps} gaps"

        async def both() -> None:
            await asyncio.gather(*map(one, LINKS))

        asyncio.run(both())

    def _verdict(self, loads: Sequence[Load]) -> None:
        """Content first: afterwards only groups may move, and they stop."""
        content = {place: rows for side in SIDES for place, rows in self._content(side).items()}
        self._report.records = sum(
            len(rows) for place, rows in content.items() if mirror_of(place) in content
        )
        if self._letting_go:
            judged = holes.judge(content, self._history, mirror_of, asyncio.run(self._gaps()))
            self._report.missed = judged.missed
            self._tell(judged.findings, holes.ANOMALIES)
            return
        wait_until(lambda: self._have_read(loads, content), "groups have read all", bound_s=_GROUPS_S)
        for load in loads:
            load.threads.stop()
        committed: dict[tuple[str, Place], int] = {}
        if not self._one_name:
            committed = {at: offset for load in loads for at, offset in load.standing(load.side).items()}
        translated: dict[tuple[str, Place], int] = {}
        deadline = time.monotonic() + _GROUPS_S
        while committed:
            with contextlib.suppress(KafkaException):
                translated = {at: n for load in loads for at, n in load.standing(load.other).items()}
            if not inexact(content, mirror_of, committed, translated) or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        findings = judge(content, self._history, mirror_of, committed, translated)
        findings["circled"] = list(self._circled(content))
        self._tell(findings, [name for name in ANOMALIES if name not in (HIDDEN if self._losing else ())])

    def _tell(self, findings: Findings, names: Sequence[str]) -> None:
        self._report.anomalies = {name: len(findings[name]) for name in names}
        self._report.examples = {name: found[:10] for name, found in findings.items() if found}

    async def _gaps(self) -> holes.Gaps:
        """What both links have on record."""
        found: dict[Place, list[Gap]] = {}
        for link in LINKS:
            source, target = ends(link)
            async with ClusterClient(self._world.bootstrap(target), first_contact=_HEALS) as there:
                for tp, ledger in (await read_ledgers(there, link)).items():
                    found[source, tp.topic, tp.partition] = ledger.gaps
        return found

    def _have_read(self, loads: Sequence[Load], content: Mapping[Place, Sequence[tuple[int, Row]]]) -> bool:
        """The first group of each side is at the end; the other one may be anywhere."""
        at = {(moment.group, moment.place): moment.offset for moment in list(self._history.tried)}
        return all(
            at.get((load.groups[0], place), 0) > rows[-1][0]
            for load in loads
            for place, rows in content.items()
            if place[0] == load.side and rows and mirror_of(place) in content
        )

    def _content(self, side: str) -> dict[Place, list[tuple[int, Row]]]:
        """Where both sides write to one topic, what came over the link counts as of a topic of its own."""
        bootstrap = self._world.bootstrap(side)
        found = self._world.partitions(side)
        other = next(each for each in SIDES if each != side)
        theirs = [f"{other}.{topic}" for topic in self._world.topics[other]]
        if not self._one_name:
            wanted = [*self._world.topics[side], *theirs]
            return {
                (side, topic, partition): read_all(bootstrap, topic, partition)
                for topic in wanted
                for partition in range(found.get(topic, 0))
            }
        content: dict[Place, list[tuple[int, Row]]] = {}
        for topic in sorted({*self._world.topics[side], *self._world.topics[other]}):
            for partition in range(found.get(topic, 0)):
                rows = read_all(bootstrap, topic, partition)
                if topic in self._world.topics[side]:
                    content[side, topic, partition] = of_origin(rows, side)
                if topic in self._world.topics[other]:
                    content[side, f"{other}.{topic}", partition] = of_origin(rows, other)
        return content

    def _circled(self, content: Mapping[Place, Sequence[tuple[int, Row]]]) -> Iterator[str]:
        if self._one_name:
            yield from circled(content, self._world.topics)
        for side in SIDES:
            other = next(each for each in SIDES if each != side)
            yield from (each for each in self._world.partitions(side) if each.startswith(f"{other}.{side}."))

    def _audit(self) -> None:
        for link in LINKS:
            result = audited(self._world, link, self._world.topics[ends(link)[0]])
            self._report.audit[link] = result
            is_explained = self._letting_go and result["exit_code"] == 3 and result["is_explained"]
            if result["exit_code"] and not is_explained:
                self._report.failures.append(f"the audit of {link} ended with {result['exit_code']}")


def mirror_of(place: Place) -> Place:
    """Where the copy of a source's partition is."""
    side, topic, partition = place
    other = next(each for each in SIDES if each != side)
    return other, f"{side}.{topic}", partition
