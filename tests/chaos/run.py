"""One run: three brokers, a replicated topic, load, faults, healing, a last reading, the check."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.chaos.checker import Findings, check
from tests.chaos.nemesis import Nemesis
from tests.chaos.workload import Workload, read_all
from tests.support.broker import Cluster
from tests.support.waiting import wait_until

TOPIC, PARTITIONS = "chaos", 3
SETTINGS: Mapping[str, str] = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "100",
    "zookeeper.session.timeout.ms": "3000",
}


@dataclass(slots=True)
class Report:
    """`anomalies` by name; `faults` by kind; `failures` are of the harness or of clients that hang."""

    seed: int
    minutes: float
    operations: int = 0
    acknowledged: int = 0
    transactions: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    anomalies: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    examples: Findings = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        return not self.failures and not any(self.anomalies.values())

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def run(
    directory: Path,
    zookeeper: str,
    *,
    seed: int,
    seconds: float,
    settings: Mapping[str, str] | None = None,
    broken: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """`broken` names a safety rule to switch off."""
    program = ("isthmus",) if broken is None else ("tests.chaos.broken", broken)
    cluster = Cluster(directory, zookeeper, program=program)
    for number in (1, 2, 3):
        cluster.add(number, rack=f"r{number}", settings={**SETTINGS, **(settings or {})})
    with contextlib.closing(cluster):
        cluster.start()
        bootstrap = cluster.bootstrap
        _create(bootstrap)
        workload = Workload(bootstrap, TOPIC, PARTITIONS, seed)
        workload.start()
        wait_until(lambda: workload.acknowledged > 50, "the first acknowledgements")
        nemesis = Nemesis(cluster, seed, say)
        nemesis.run(seconds)
        history = workload.history
        try:
            _finish(bootstrap, workload)
        except AssertionError as error:
            workload.failures.append(str(error))
    findings = check(history) if history.log else {}
    return Report(
        seed=seed,
        minutes=round(seconds / 60, 2),
        operations=len(history.sends) + len(history.polls),
        acknowledged=workload.acknowledged,
        transactions=len(history.transactions),
        faults=dict(nemesis.faults),
        anomalies={name: len(instances) for name, instances in findings.items()},
        failures=workload.failures,
        examples={name: instances[:10] for name, instances in findings.items() if instances},
    )


def _finish(bootstrap: str, workload: Workload) -> None:
    """Everything is whole again, and the log is read. Raises AssertionError when it does not come to that."""
    _healed(bootstrap)
    before = workload.acknowledged
    wait_until(lambda: workload.acknowledged > before, "acknowledgements after healing")
    workload.stop()
    wait_until(lambda: _stable(bootstrap), "no transaction is open any more")
    history = workload.history
    history.log = read_all(bootstrap, TOPIC, PARTITIONS, committed=False)
    history.committed = read_all(bootstrap, TOPIC, PARTITIONS, committed=True)


def _create(bootstrap: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    for future in client.create_topics([new]).values():
        future.result(60)
    _healed(bootstrap)


def _healed(bootstrap: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})

    def whole() -> bool:
        known = client.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        return len(known) == PARTITIONS and all(len(each.isrs) == 3 for each in known.values())

    wait_until(whole, "every replica in sync", bound_s=120)


def _stable(bootstrap: str) -> bool:
    """Transactions of producers that are gone end by their timeout; then all up to the end is readable."""
    ends = [read_end(bootstrap, committed=each) for each in (False, True)]
    return ends[0] == ends[1]


def read_end(bootstrap: str, *, committed: bool) -> list[int]:
    client = AdminClient({"bootstrap.servers": bootstrap})
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    asked = {TopicPartition(TOPIC, each): OffsetSpec.latest() for each in range(PARTITIONS)}
    answers = client.list_offsets(asked, isolation_level=level)
    return [future.result(30).offset for future in answers.values()]
