"""Lag is counted from commits and ends: ahead, expired and unknown stay apart from zero."""

from prometheus_client import CollectorRegistry, generate_latest

from monitor.exporter import LagCollector
from monitor.lag import GroupLag, group_lag
from protocol.types import TopicPartition

A, B, C = (TopicPartition("t", index) for index in range(3))


def sample() -> GroupLag:
    committed = {A: 5, B: 12, C: 1}
    return group_lag("g", "Stable", 2, committed, {A: 0, B: 0}, {A: 9, B: 10})


def test_lag_ahead_and_unknown() -> None:
    lag = sample()
    assert lag.lag == {A: 4, B: 0}
    assert lag.ahead == {B: 2}
    assert lag.total == 4
    assert C not in lag.lag


def test_records_that_retention_took_are_counted_apart() -> None:
    assert group_lag("g", "Empty", 0, {A: 3}, {A: 8}, {A: 9}).behind_start == {A: 5}


def exposition(collector_update: list[GroupLag] | None) -> str:
    registry = CollectorRegistry()
    collector = LagCollector("east", registry)
    collector.update([sample()])
    collector.update(collector_update)
    return generate_latest(registry).decode()


def test_metrics_have_the_figures() -> None:
    text = exposition([sample()])
    labels = '{cluster="east",consumergroup="g",partition="0",topic="t"}'
    assert f"kafka_consumergroup_lag{labels} 4.0" in text
    assert 'kafka_consumergroup_ahead{cluster="east",consumergroup="g",partition="1",topic="t"} 2.0' in text
    assert 'kafka_up{cluster="east"} 1.0' in text


def test_a_silent_cluster_shows_no_old_figures() -> None:
    text = exposition(None)
    assert 'kafka_up{cluster="east"} 0.0' in text
    assert "kafka_consumergroup_lag{" not in text
