"""What a link's metrics say, and how many series they are."""

import math
import time

import pytest
from prometheus_client import CollectorRegistry

from protocol.types import TopicPartition
from replicator.book import Book, State
from replicator.entry_rows import Entry
from replicator.metric_table import METRICS, PARTITION, PARTITION_QUANTILES, QUANTILES
from replicator.metrics import LinkMetrics
from tools.generate_metrics_docs import DOCUMENT, document
from transfer.ledger import Copied, Gap, Lineage, PartitionLedger
from transfer.offset_map import Run

NAME = "east->west"


@pytest.fixture
def registry():
    return CollectorRegistry()


def account(book, partition, end=100):
    tp, target = TopicPartition("orders", partition), TopicPartition("east.orders", partition)
    made = book.account(tp, target)
    book.adopt(made, Entry(PartitionLedger(Lineage("c1", "s", *tp), Lineage("c2", "t", *target))), [])
    made.heard(end)
    return made


def copied(first, records, *, crcs=1, written=1, age_s=0.5):
    when = int((time.time() - age_s) * 1000)
    run = Run(first, first, records)
    return Copied(
        (run,), first + records, records, records * 50, (1,) * crcs, last_timestamp=when, written=written
    )


def value(registry, name, **labels):
    return registry.get_sample_value(f"isthmus_link_{name}", {"link": NAME, **labels})


def test_gaps_are_counted_by_kind_not_by_what_is_of_one_alone(registry):
    book = Book(LinkMetrics(NAME, registry), 30.0, lambda: None)
    row = account(book, 0)
    recreated = [Gap(0, 0, f"source topic re-created (was {number} in cluster c)") for number in range(3)]
    book.adopt(row, row.entry, recreated)
    assert value(registry, "gaps_total", reason="source topic re-created") == 3


def test_lags_in_records_bytes_and_time(registry):
    book = Book(LinkMetrics(NAME, registry), 30.0, lambda: None)
    row = account(book, 0)
    book.copied(row.tp, copied(0, 40, age_s=7))
    book.observe()
    labels = {"topic": "orders", "partition": "0"}
    assert value(registry, "lag_records", **labels) == 60
    assert value(registry, "lag_bytes", **labels) == 3000
    assert value(registry, "lag_record_time_seconds", **labels) >= 7
    book.copied(row.tp, copied(40, 60))
    book.observe()
    for name in ("lag_records", "lag_bytes", "lag_seconds", "lag_record_time_seconds"):
        assert value(registry, name, **labels) == 0
    assert value(registry, "latency_quantile_seconds", quantile="0.5") >= 0.5


LAGS = ("lag_records", "lag_bytes", "lag_seconds", "lag_record_time_seconds")


def test_a_lag_that_nobody_knows_is_not_zero(registry):
    book = Book(LinkMetrics(NAME, registry), 30.0, lambda: None)
    level, behind, gone, never = (account(book, number) for number in range(4))
    never.source_end = -1
    book.copied(level.tp, copied(0, 100))
    book.copied(gone.tp, copied(0, 40))

    def lags(number):
        return [value(registry, name, topic="orders", partition=str(number)) for name in LAGS]

    book.observe()
    assert lags(0) == [0, 0, 0, 0]
    assert lags(1)[0] == 100
    assert math.isnan(lags(1)[1]), "nothing was copied that tells how large they are"
    assert math.isnan(lags(1)[3]), "nor how old"
    gone.state = State.GONE
    for row in (level, behind):
        row.heard_at -= 60
    book.observe()
    for number in (0, 2, 3):
        assert all(map(math.isnan, lags(number))), number
    assert lags(1)[0] == 100, "so many at least"
    shown = book.to_json()
    assert [shown[f"orders-{number}"]["lag"] for number in range(4)] == [0, 100, None, None]
    assert shown["orders-3"]["lag_seconds"] is None


def test_the_series_of_others_tell_what_is_known_of_them(registry):
    book = Book(LinkMetrics(NAME, registry, max_series=0), 30.0, lambda: None)
    row, gone = account(book, 0), account(book, 1)
    gone.state = State.GONE
    book.observe()
    assert value(registry, "lag_records", topic="other", partition="other") == 100
    row.state = State.GONE
    book.observe()
    assert math.isnan(value(registry, "lag_records", topic="other", partition="other"))
    book.drop(row.tp)
    book.drop(gone.tp)
    book.observe()
    assert value(registry, "lag_records", topic="other", partition="other") == 0


def test_the_lane_is_told_with_its_reason(registry):
    book = Book(LinkMetrics(NAME, registry), 30.0, lambda: None)
    small, plain = account(book, 0), account(book, 1)
    book.copied(small.tp, copied(0, 40, crcs=40, written=1))
    book.copied(plain.tp, copied(0, 40))
    book.observe()
    assert value(registry, "lane_partitions", lane="merge") == 1
    assert value(registry, "lane_partitions", lane="raw") == 1
    shown = book.to_json()["orders-0"]
    assert (shown["lane"], shown["lane_reason"]) == ("merge", "small batches: the last 40 became 1")
    book.copied(small.tp, copied(40, 1))
    assert book.to_json()["orders-0"]["lane"] == "raw"
    book.records_lane = "because"
    assert account(book, 2).way.lane == "records"


def test_retries_are_counted_over_writers_that_are_opened_anew(registry):
    book = Book(LinkMetrics(NAME, registry), 30.0, lambda: None)
    account(book, 0)
    for seen in (2, 3, 1):  # the third is another writer's
        book.retries = lambda _, seen=seen: seen
        book.observe()
    assert value(registry, "retries_total", topic="orders", partition="0") == 4


def test_partitions_beyond_the_limit_share_their_series(registry):
    per_partition = sum(metric.labels == PARTITION for metric in METRICS)
    book = Book(LinkMetrics(NAME, registry, max_series=2 * per_partition), 30.0, lambda: None)
    rows = [account(book, partition, end=100 * (partition + 1)) for partition in range(5)]
    for row in rows:
        book.copied(row.tp, copied(0, 10))
    book.observe()
    other = {"topic": "other", "partition": "other"}
    assert value(registry, "lag_records", topic="orders", partition="1") == 190
    assert value(registry, "lag_records", topic="orders", partition="2") is None
    assert value(registry, "lag_records", **other) == 290 + 390 + 490
    assert value(registry, "records_total", **other) == 30
    book.drop(rows[4].tp)
    book.drop(rows[0].tp)
    book.observe()
    assert value(registry, "lag_records", **other) == 290 + 390
    assert value(registry, "lag_records", topic="orders", partition="0") is None


def test_topics_that_come_and_go_leave_no_more_series_than_the_limit(registry):
    per_partition = sum(metric.labels == PARTITION for metric in METRICS)
    metrics = LinkMetrics(NAME, registry, max_series=2 * per_partition)
    tps = [TopicPartition(f"of-an-hour-{number}", 0) for number in range(5)]
    for tp in tps:
        metrics.copied(metrics.of(tp), copied(0, 10))
        metrics.drop(tp)
    metrics.copied(metrics.of(tps[4]), copied(10, 10))  # it comes back
    counted = [value(registry, "records_total", topic=tp.topic, partition="0") for tp in tps]
    assert counted == [None, None, None, 10, 20]


def test_a_topic_that_is_called_as_the_rest_is_part_of_it(registry):
    metrics = LinkMetrics(NAME, registry, max_series=len(QUANTILES) * 10)
    for topic, age in (("other", 0.1), ("first", 2.0), ("second", 9.0)):
        metrics.copied(metrics.of(TopicPartition(topic, 0)), copied(0, 10, age_s=age))
    found = [
        sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name.endswith("topic_latency_quantile_seconds")
        and (sample.labels["topic"], sample.labels["quantile"]) == ("other", "1")
    ]
    assert len(found) == 1, "one series twice is an error of the page"
    assert found[0] >= 9


def test_each_topic_has_percentiles_of_its_own_up_to_the_limit(registry):
    metrics = LinkMetrics(NAME, registry, max_series=2 * len(QUANTILES) * 10)
    ages = {"slow": 9.0, "fast": 0.1, "more": 3.0, "most": 5.0}
    tps = {topic: TopicPartition(topic, 0) for topic in ages}
    for topic, age in ages.items():
        metrics.copied(metrics.of(tps[topic]), copied(0, 10, age_s=age))
    metrics.observe()

    def median(topic):
        return value(registry, "topic_latency_quantile_seconds", topic=topic, quantile="0.5")

    assert 9 <= median("slow") < 10
    assert 0.1 <= median("fast") < 1
    assert (median("more"), median("most")) == (None, None)
    assert 3 <= median("other") < 4
    metrics.drop(tps["slow"])
    assert median("slow") is None
    metrics.copied(metrics.of(TopicPartition("next", 0)), copied(0, 10, age_s=7))
    assert 3 <= median("more") < 4  # its room is free again
    assert median("next") is None
    assert value(registry, "topic_latency_quantile_seconds", topic="other", quantile="1") >= 7


def test_each_partition_has_percentiles_of_its_own_up_to_the_limit_and_the_status_has_all(registry):
    metrics = LinkMetrics(NAME, registry, max_series=2 * len(PARTITION_QUANTILES) * 10)
    tps = [TopicPartition("orders", number) for number in range(4)]
    for age, tp in enumerate(tps, 1):
        metrics.copied(metrics.of(tp), copied(0, 10, age_s=age))
        metrics.copied(metrics.of(tp), copied(10, 1, age_s=10 * age))

    def found(quantile, partition, topic="orders"):
        labels = {"topic": topic, "partition": str(partition), "quantile": quantile}
        return value(registry, "partition_latency_quantile_seconds", **labels)

    assert 1 <= found("0.5", 0) < 2
    assert 2 <= found("0.5", 1) < 3
    assert 20 <= found("1", 1) < 22
    assert (found("0.9", 1), found("0.5", 2)) == (None, None)
    assert 3 <= found("0.5", "other", "other") <= 4.5
    assert 40 <= found("1", "other", "other") < 43
    assert 40 <= metrics.latencies.of(tps[3])[2] < 43
    metrics.drop(tps[0])
    assert (found("0.5", 0), metrics.latencies.of(tps[0])) == (None, None)
    assert 3 <= found("0.5", 2) < 4  # its room is free
    assert 40 <= value(registry, "topic_latency_quantile_seconds", topic="orders", quantile="1") < 43


def test_the_page_is_up_to_date():
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "run python -m tools.generate_metrics_docs"
