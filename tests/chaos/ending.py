"""The end of a run: everything heals, clients stop, a last reader takes the whole log, replicas are compared.

Each step is tried whatever became of the one before: a cluster that does not heal is a failure of its own,
and what can be read of it may say why. Must not judge what was read (`checker`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.chaos.clients import INPUT, OUTPUT, PARTITIONS
from tests.chaos.history import Place, Records
from tests.chaos.person import Person
from tests.chaos.reading import read_all
from tests.chaos.replicas import differences
from tests.chaos.workload import Workload
from tests.chaos.world import World
from tests.support.waiting import wait_until

TOPICS = (INPUT, OUTPUT)


class Ending:
    """`failures` in words; `differing` replicas."""

    def __init__(self, world: World, workload: Workload, person: Person, *, bound_s: float) -> None:
        self._world = world
        self._workload = workload
        self._person = person
        self._bound_s = bound_s
        self.failures: list[str] = []
        self.differing: list[str] = []

    def run(self) -> None:
        bootstrap, history = self._world.bootstrap, self._workload.history
        with self._tried():
            self._world.heal()
            self._person.help()
        with self._tried():
            wait_whole(bootstrap, self._bound_s)
        before = self._workload.acknowledged
        with self._tried():
            wait_until(
                lambda: self._workload.acknowledged > before, "acknowledgements again", bound_s=self._bound_s
            )
        self._workload.stop()
        with self._tried():
            wait_until(lambda: _stable(bootstrap), "no transaction is open any more", bound_s=self._bound_s)
        with self._tried():
            history.log = self._read(committed_only=False)
        with self._tried():
            history.committed = self._read(committed_only=True)
        with self._tried():
            places = [Place(topic, each) for topic in TOPICS for each in range(PARTITIONS)]
            self.differing = differences(self._world.logs, places)

    @contextlib.contextmanager
    def _tried(self) -> Iterator[None]:
        try:
            yield
        except (AssertionError, KafkaException, TimeoutError) as error:
            self.failures.append(f"after the faults: {error!r}")

    def _read(self, *, committed_only: bool) -> dict[Place, Records]:
        return {
            place: records
            for topic in TOPICS
            for place, records in read_all(
                self._world.bootstrap, topic, committed_only=committed_only, timeout_s=self._bound_s
            ).items()
        }


def wait_whole(bootstrap: str, bound_s: float) -> None:
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
        wait_until(whole, "every replica in sync", bound_s=bound_s)
    except AssertionError as error:
        raise AssertionError(f"{error}; leaders and in-sync replicas: {seen}") from None


def _stable(bootstrap: str) -> bool:
    """Transactions of producers that are gone end by their timeout; then all up to the end is readable."""
    try:
        ends = [_read_ends(bootstrap, committed=each) for each in (False, True)]
    except (KafkaException, TimeoutError):  # a leader has just changed, or nobody answers yet
        return False
    return ends[0] == ends[1]


def _read_ends(bootstrap: str, *, committed: bool) -> list[int]:
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": 10_000})
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    places = [TopicPartition(topic, each) for topic in TOPICS for each in range(PARTITIONS)]
    asked = {place: OffsetSpec.latest() for place in places}
    answers = client.list_offsets(asked, isolation_level=level)
    return [future.result(30).offset for future in answers.values()]
