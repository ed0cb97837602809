"""Faults by a schedule that a seed makes: which, to whom, when, and for how long.

Every fault is undone before the next begins, so that a majority of replicas lives all the time and nothing
that was acknowledged may be lost. `Nemesis.run` says what it did; the same seed does the same.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

from confluent_kafka.admin import AdminClient

from tests.support.broker import BrokerProcess, Cluster


class Nemesis:
    def __init__(self, cluster: Cluster, seed: int, say: Callable[[str], None] = lambda text: None) -> None:
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._say = say
        self.faults: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        """Faults for this long, then everything is whole again."""
        end = time.monotonic() + seconds
        kinds = [self.kill, self.kill_ahead, self.kill_the_controller, self.pause, self.restart]
        while time.monotonic() < end:
            kind = self._chance.choice(kinds)
            kind()
            self.faults[kind.__name__] += 1
            time.sleep(self._chance.uniform(1.0, 4.0))
        for broker in self._cluster.brokers.values():
            if not broker.running:
                broker.start()

    def _anyone(self) -> BrokerProcess:
        return self._cluster.brokers[self._chance.choice(sorted(self._cluster.brokers))]

    def kill(self) -> None:
        """SIGKILL; back after a while, shorter or longer than the session."""
        self._kill(self._anyone())

    def _kill(self, broker: BrokerProcess) -> None:
        away = self._chance.choice([0.0, 1.0, 5.0])
        self._say(f"kill broker {broker.broker_id} for {away:g} s")
        broker.kill()
        time.sleep(away)
        broker.start()

    def kill_the_controller(self) -> None:
        client = AdminClient({"bootstrap.servers": self._cluster.bootstrap, "log_level": 0})
        number = client.list_topics(timeout=30).controller_id
        self._kill(self._cluster.brokers.get(number) or self._anyone())

    def kill_ahead(self) -> None:
        """The others stand still, shorter than they may lag; one is killed before they have all it has."""
        killed = self._anyone()
        others = [each for each in self._cluster.brokers.values() if each is not killed]
        self._say(f"kill broker {killed.broker_id} while the others stand still")
        for broker in others:
            broker.pause()
        time.sleep(1.0)
        killed.kill()
        for broker in others:
            broker.resume()
        time.sleep(self._chance.choice([0.0, 5.0]))
        killed.start()

    def pause(self) -> None:
        """SIGSTOP, shorter or longer than the session: what it does afterwards must not count."""
        broker = self._anyone()
        stands = self._chance.choice([0.5, 4.0, 8.0])
        self._say(f"pause broker {broker.broker_id} for {stands:g} s")
        broker.pause()
        time.sleep(stands)
        broker.resume()

    def restart(self) -> None:
        """A clean stop and start."""
        broker = self._anyone()
        self._say(f"restart broker {broker.broker_id}")
        broker.stop()
        broker.start()
