"""The person who changes roles, by the commands of `isthmus mirrors`; some of them are killed half-way.

Each act ends with both sides as source and mirror. Planned: `promote` (given up now and then by `unfence`),
then `reverse`. After a loss: `failover`, while the source is dead or alive; then `reverse`, or the way home
by `truncate-and-restore`. A command that says no is run again, as its text says.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import KafkaException

from tests.chaos.claims import LeftOut
from tests.chaos.links.world import ROOT
from tests.chaos.mirrors.history import History
from tests.chaos.mirrors.world import MirrorWorld

T = TypeVar("T")
ACTS: Mapping[str, int] = {"promote": 5, "failover_dead": 2, "failover_alive": 1}
"""How often each is chosen; the source of a failover is dead or alive."""
_TRIES = 40
_COMMAND_S = 300.0
_CUT = 3
"""Exit code: done, and records were lost, or cut off and saved."""


class Told(NamedTuple):
    """What a command said. `code` None: it was killed."""

    code: int | None
    result: dict[str, Any]
    text: str


class GivenUp(Exception):
    """A change of roles that does not come to an end."""


class Operator:
    """`acts` counts what was done, `killed` the commands that were killed; `wrong` is what must not be."""

    def __init__(self, world: MirrorWorld, history: History, seed: int, acts: Collection[str] = ()) -> None:
        """`acts` limits what is done (`ACTS`)."""
        self.acts: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.killed = 0
        self.wrong: list[str] = []
        self.saved_to = world.directory / "saved"
        self._world = world
        self._history = history
        self._chance = random.Random(f"operator {seed}")
        self._runs = 0
        self._weights = {name: weight for name, weight in ACTS.items() if not acts or name in acts}

    def work(self, ended: threading.Event) -> None:
        """Acts until it is told to end; what was begun is brought to its end. Raises GivenUp."""
        kinds: dict[str, Callable[[], None]] = {
            "promote": self._planned,
            "failover_dead": self._lost,
            "failover_alive": self._half_lost,
        }
        while not ended.wait(self._chance.uniform(5, 20)):
            name = self._chance.choices(list(self._weights), list(self._weights.values()))[0]
            try:
                with self._world.roles:
                    kinds[name]()
            except LeftOut as error:
                self._world.say(f"left out: {name}, {error}")
            else:
                self.acts[name] += 1

    # -- acts

    def _planned(self) -> None:
        world, link = self._world, self._world.link
        source, target = world.active, world.other
        self._until_done(lambda: self._promote(link, target), f"promote {link}")
        self._active(target)
        time.sleep(self._chance.uniform(0, 4))
        cut = self._reverse(link)
        if cut:
            self.wrong.append(f"promote {link} was called whole, and {source} had {cut} records of its own")

    def _promote(self, link: str, target: str) -> bool:
        told = self._run("promote", link, "--timeout", "30")
        if told.code == 0:
            if told.result["records_lost"] or not told.result["lost_is_known"]:
                self.wrong.append(f"promote {link}: {told.result}")
            return True
        if self._is_writable(target):
            return True  # it was killed behind its last step
        if told.code is not None and self._chance.random() < 0.2:
            self._gives_up(link)
        return False

    def _gives_up(self, link: str) -> None:
        self._run("unfence", link)
        self.acts["unfence"] += 1
        time.sleep(3)

    def _lost(self) -> None:
        world = self._world
        source, link = world.active, world.link
        with world.claim(world.brokers_of(source)):
            world.say(f"{source} dies")
            for name in world.brokers_of(source):
                world.kill(name)
            self._failover(link)
            time.sleep(self._chance.uniform(1, 15))
            for name in world.brokers_of(source):
                world.launch(name)
        self._afterwards(link, source)

    def _half_lost(self) -> None:
        source, link = self._world.active, self._world.link
        self._failover(link)
        time.sleep(self._chance.uniform(1, 15))
        self._afterwards(link, source)

    def _failover(self, link: str) -> None:
        target = self._world.other

        def once() -> bool:
            return self._run("failover", link).code in (0, _CUT) or self._is_writable(target)

        self._until_done(once, f"failover {link}")
        counts = self._ask(lambda: self._world.partitions(target))
        self._world.written = {name: counts[name] for name in self._world.written}
        self._active(target)

    def _afterwards(self, link: str, source: str) -> None:
        self._until_done(self._same_partitions, "partitions of both sides")
        if self._chance.random() < 0.5:
            self._reverse(link)
            return

        def home() -> bool:
            told = self._run("truncate-and-restore", link, "--timeout", "60", *self._save())
            self._with_latecomers(told, link)
            return told.code in (0, _CUT)

        self._until_done(home, f"truncate-and-restore {link}")
        self.acts["truncate-and-restore"] += 1
        self._active(source)

    def _same_partitions(self) -> bool:
        """A topic that had grown at the old side only, as the refusal says."""
        world = self._world
        try:
            here, there = world.partitions(world.active), world.partitions(world.other)
            for name, count in list(world.written.items()):
                if there[name] > here[name]:
                    world.say(f"{name} at {world.active} grows to {there[name]} partitions, as there")
                    world.grow_topic(world.active, name, there[name])
                world.written = {**world.written, name: max(count, there[name])}
        except (KafkaException, LeftOut):
            return False
        return True

    def _reverse(self, link: str) -> int:
        """Records that were cut off, as far as a command lived to say so."""
        cut = 0

        def once() -> bool:
            nonlocal cut
            told = self._run("reverse", link, *self._save())
            cut += told.result.get("records_cut", 0)
            self._with_latecomers(told, link)
            return told.code in (0, _CUT)

        self._until_done(once, f"reverse {link}")
        return cut

    def _with_latecomers(self, told: Told, link: str) -> None:
        """What the refusal says: a topic of the old side whose mirror came after the failover is failed over
        too, one that has more partitions there grows."""
        if "or fail over, first" in told.text:
            self._run("failover", link)
        if "give it as many there first" in told.text:
            self._until_done(self._same_partitions, "partitions of both sides")

    # -- commands

    def _save(self) -> tuple[str, str]:
        return "--save-to", str(self.saved_to)

    def _run(self, verb: str, link: str, *more: str) -> Told:
        """One in four is killed somewhere in the middle."""
        self._runs += 1
        command = [
            sys.executable,
            "-m",
            *self._world.program,
            "mirrors",
            verb,
            link,
            "--yes",
            "--json",
            *more,
        ]
        command += ["--topology", str(self._world.file)]
        log = self._world.directory / f"operator-{self._runs:04d}-{verb}.log"
        bound = self._chance.uniform(0.5, 6.0) if self._chance.random() < 0.25 else _COMMAND_S
        with log.open("wb") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT)
            try:
                output, _ = process.communicate(timeout=bound)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                self.killed += 1
                if bound == _COMMAND_S:
                    self.wrong.append(f"{verb} {link} has not ended within {bound:g} s: {log.name}")
                self._world.say(f"{verb} {link} is killed")
                return Told(None, {}, "")
        text = log.read_text(errors="replace")
        self._world.say(f"{verb} {link} ended with {process.returncode}: {text.strip()[-200:]}")
        if process.returncode not in (0, _CUT):
            self.refusals[f"{verb}: {text.strip().splitlines()[-1:]}"[:200]] += 1
            return Told(process.returncode, {}, text)
        return Told(process.returncode, json.loads(output), text)

    def _until_done(self, once: Callable[[], bool], what: str) -> None:
        for _ in range(_TRIES):
            if once():
                return
            time.sleep(1)
        raise GivenUp(what)

    def _ask(self, question: Callable[[], T]) -> T:
        for _ in range(_TRIES):
            with contextlib.suppress(KafkaException):
                return question()
            time.sleep(1)
        raise GivenUp("a side that was failed over to does not answer")

    def _is_writable(self, side: str) -> bool:
        """Whether no topic there is a mirror."""
        return self._world.mirrors(side) == []

    def _active(self, side: str) -> None:
        self._world.say(f"{side} is written to")
        self._world.active = side


def saved_files(folder: Path) -> list[dict[str, Any]]:
    """What `reverse` has put there, by its descriptions; `path` is the segment."""
    return [
        {**json.loads(path.read_text()), "path": path.with_suffix(".log")}
        for path in sorted(folder.glob("*/*.json"))
    ]
