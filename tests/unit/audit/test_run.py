"""An audit from end to end, beside an engine that fails."""

from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException

from audit import run
from audit.errors import AuditError
from audit.lanes import Ends, split_lane, without_ledger
from audit.planning import Plan
from audit.settings import AuditSettings, ClusterSide, TopicPair
from protocol.types import TopicPartition

TP = TopicPartition("t", 0)
SETTINGS = AuditSettings(
    source=ClusterSide(bootstrap="h:1"),
    target=ClusterSide(bootstrap="h:2"),
    topics=(TopicPair(source="t", target="t"),),
)


def test_an_engine_that_fails_is_an_audit_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, and with no result."""
    lane = without_ledger(0, TP, TP, Ends(0, 9), Ends(0, 9))

    async def plan(_: AuditSettings) -> Plan:
        return Plan([lane], split_lane(lane, 0, [], []))

    def fails(*_: object) -> None:
        raise PySparkException("Job aborted: a worker died\n at org.apache.spark")

    monkeypatch.setattr(run, "_plan", plan)
    monkeypatch.setattr(run, "load", fails)
    engine = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
    with pytest.raises(AuditError, match=r"Spark failed.*a worker died$"):
        run.run_audit(SETTINGS, engine)


def test_a_fault_of_our_own_is_not_called_one_of_the_engine() -> None:
    assert run._of_spark(KeyError("lane")) is None
