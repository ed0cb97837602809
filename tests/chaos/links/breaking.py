"""Faults by a schedule, some at once, and who says the word that clusters wait for meanwhile.

Owns the lanes and the counts of faults. Must not know what clients do, nor what is right.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.chaos.claims import LeftOut
from tests.chaos.links.faults import Kind
from tests.chaos.links.schedule import WEIGHTS, steps
from tests.chaos.links.world import SIDES, LinkWorld
from tests.chaos.person import Person


class Breaking:
    """`faults` by name. `done` counts them, `failed` says which did not work; `words` are unclean elections
    that were asked for."""

    def __init__(
        self,
        world: LinkWorld,
        seed: int,
        faults: Mapping[str, Kind],
        often: Mapping[str, int] = WEIGHTS,
    ) -> None:
        self.done: Counter[str] = Counter()
        self.failed: list[str] = []
        self.words = 0
        self._world = world
        self._seed = seed
        self._faults = faults
        self._often = often
        self._lock = threading.Lock()

    def run(self, seconds: float, kinds: Sequence[str] | None, lanes: int) -> None:
        """For so long; the last faults are over then."""
        end = time.monotonic() + seconds
        threads = [
            threading.Thread(target=self._lane, args=(lane, end, kinds), name=f"lane {lane}")
            for lane in range(lanes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _lane(self, lane: int, end: float, kinds: Sequence[str] | None) -> None:
        for step in steps(self._seed, lane, kinds, self._often):
            time.sleep(min(step.rest_s, max(0.0, end - time.monotonic())))
            if time.monotonic() >= end:
                return
            try:
                with self._faults[step.kind](self._world, step):
                    time.sleep(step.seconds)
            except LeftOut as error:
                self._world.say(f"left out: {step.kind}, {error}")
            except Exception as error:  # a lane that ends would leave the run without faults
                self.failed.append(f"{step.kind}: {error!r}")
            else:
                with self._lock:
                    self.done[step.kind] += 1

    @contextmanager
    def helped(self) -> Iterator[None]:
        """A person on each side says the word for partitions whose last replica in sync was killed."""
        ended = threading.Event()
        helping = threading.Thread(target=self._help, args=(ended,), name="persons", daemon=True)
        helping.start()
        try:
            yield
        finally:
            ended.set()
            helping.join(120)

    def _help(self, ended: threading.Event) -> None:
        people = {side: Person(self._world.bootstrap(side), self._world.say) for side in SIDES}
        while not ended.wait(1.0):
            for side, person in people.items():
                if person.is_needed():
                    try:
                        with self._world.claim(self._world.brokers_of(side)):
                            self._world.heal(side)
                            person.help()
                    except (LeftOut, AssertionError) as error:
                        self._world.say(f"nobody can help at {side}: {error}")
            self.words = sum(person.words for person in people.values())
