"""Real clients under load, each in a thread, each keeping what it did and saw.

What a client is not told stays unknown; a client that is fenced or fatally failed is made anew, as an
application would. Must not know faults.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException

from tests.chaos import grouping, reading, writing
from tests.chaos.clients import Client, Ledger
from tests.chaos.history import History, Outcome

Job = Callable[[Client], None]
_SILENT_S = 60.0
"""After this long without a sign of life another client takes its place: longer than any call may last."""

JOBS: Mapping[str, tuple[Job, int]] = {
    "p": (writing.produce, 1),
    "q": (writing.produce_in_a_row, 1),
    "a": (writing.produce_plainly, 1),
    "o": (writing.produce_to_leader, 1),
    "t": (writing.transact, 2),
    "c": (reading.read_committed, 1),
    "u": (reading.read_uncommitted, 1),
    "g": (grouping.commit, 2),
    "x": (grouping.transform, 2),
}
"""By the letter of their names: what they do, and how many there are."""
ORDINARY = "pqatcugx"
"""Without acks=1: a leader that is alone shows such records to readers, below `min.insync.replicas` too, and
may lose them with its disk. So it is in Kafka without KIP-966."""


class Workload:
    """`start`, then `stop`; then `history` is whole but for the last reading."""

    def __init__(
        self, bootstrap: str, seed: int, pause_s: float = 0.005, letters: Iterable[str] = ORDINARY
    ) -> None:
        """`letters` of `JOBS`: not all of them."""
        self._bootstrap = bootstrap
        self._seed = seed
        self._pause_s = pause_s
        self._letters = letters
        self._ledger = Ledger()
        self._stop = threading.Event()
        self._numbers = itertools.count()
        self._running: dict[str, tuple[Client, threading.Thread, Job]] = {}
        self._watch = threading.Thread(target=self._watch_silence, name="watch", daemon=True)
        self.failures: list[str] = []
        self.stuck: list[str] = []
        """Clients that were left behind in a call that did not return."""

    @property
    def history(self) -> History:
        return self._ledger.history

    @property
    def acknowledged(self) -> int:
        return sum(send.outcome is Outcome.DONE for send in list(self.history.sends))

    def start(self) -> None:
        for letter in self._letters:
            job, count = JOBS[letter]
            for number in range(count):
                self._launch(f"{letter}{number}", job)
        self._watch.start()

    def stop(self) -> None:
        self._stop.set()
        self._watch.join()
        deadline = time.monotonic() + _SILENT_S
        for name, (_, thread, _) in self._running.items():
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self.stuck.append(name)

    def _launch(self, name: str, job: Job) -> None:
        client = Client(
            name,
            self._bootstrap,
            self._ledger,
            random.Random(f"{self._seed} {name} {next(self._numbers)}"),
            self._stop,
            self._pause_s,
        )
        thread = threading.Thread(target=self._guarded, args=(client, job), name=name, daemon=True)
        self._running[name] = client, thread, job
        thread.start()

    def _watch_silence(self) -> None:
        while not self._stop.wait(1.0):
            for name, (client, _, job) in list(self._running.items()):
                if time.monotonic() - client.beat_at > _SILENT_S:
                    client.left = True
                    self.stuck.append(name)
                    self._launch(name, job)

    def _guarded(self, client: Client, job: Job) -> None:
        while client.goes_on:
            try:
                job(client)
            except KafkaException as error:  # fatal for this client: the next one goes on
                known = error.args[0]
                if not isinstance(known, KafkaError):
                    self.failures.append(f"{client.name}: {error!r}")
                time.sleep(0.2)
            except Exception as error:  # reported at the end
                self.failures.append(f"{client.name}: {error!r}")
                return
