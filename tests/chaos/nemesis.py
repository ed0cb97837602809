"""Runs the schedule against the world, two faults at once, and counts what was done.

The same seed gives the same faults in the same order in each lane; how they fall together in time, and who is
leader or controller then, depends on the machine.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.chaos.claims import LeftOut
from tests.chaos.faults import SINGLE, Kind
from tests.chaos.person import Person
from tests.chaos.scenes import KINDS as SCENES
from tests.chaos.schedule import LANES, Step, steps
from tests.chaos.world import World

FAULTS: dict[str, Kind] = {**SINGLE, **SCENES}
_WITH_ROLES = {"kill", "kill_ahead", "pause", "restart", "isolate"}
_ONE_WAY = {"isolate", "cut_zookeeper", "cut_clients", "cut_quorum"}


class Nemesis:
    """`kinds` limits the faults, `lanes` how many there are at once."""

    def __init__(
        self,
        world: World,
        person: Person,
        seed: int,
        *,
        kinds: Sequence[str] | None = None,
        lanes: int = LANES,
    ) -> None:
        self._world = world
        self._person = person
        self._seed = seed
        self._kinds = kinds
        self._lanes = lanes
        self._turns = _Turns()
        self._lock = threading.Lock()
        self.faults: Counter[str] = Counter()
        self.failures: list[str] = []

    def run(self, seconds: float) -> None:
        """Faults for this long; afterwards every one of them is undone."""
        end = time.monotonic() + seconds
        lanes = [
            threading.Thread(target=self._lane, args=(lane, end), name=f"lane {lane}")
            for lane in range(self._lanes)
        ]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()

    def play(self, step: Step) -> None:
        """This fault alone."""
        self._fault(step)

    def _lane(self, lane: int, end: float) -> None:
        for step in steps(self._seed, lane, self._kinds):
            time.sleep(min(step.rest_s, max(0.0, end - time.monotonic())))
            if lane == 0 and self._person.is_needed():
                self._let_help()
            if time.monotonic() >= end:
                return
            with self._turns.among_others():
                self._fault(step)

    def _fault(self, step: Step) -> None:
        name = _name(step)
        try:
            with FAULTS[step.kind](self._world, step):
                time.sleep(step.seconds)
        except LeftOut as error:
            self._world.say(f"left out: {name}, {error}")
        except Exception as error:  # a lane that ends would leave the run without faults
            self.failures.append(f"{name}: {error!r}")
        else:
            with self._lock:
                self.faults[name] += 1

    def _let_help(self) -> None:
        with self._turns.alone():
            try:
                self._world.heal()
            except AssertionError as error:
                self._world.say(f"nobody can help: {error}")
                return
            self._person.help()


def _name(step: Step) -> str:
    """What it counts as."""
    role = f"_{step.role}" if step.kind in _WITH_ROLES and step.role != "any" else ""
    return f"{step.kind}{role}" + ("_one_way" if step.kind in _ONE_WAY and step.is_one_way else "")


class _Turns:
    """Many among others, or one alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._active = 0
        self._is_alone = False

    @contextmanager
    def among_others(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_alone)
            self._active += 1
        try:
            yield
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_alone)
            self._is_alone = True
            self._changed.wait_for(lambda: not self._active)
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()
