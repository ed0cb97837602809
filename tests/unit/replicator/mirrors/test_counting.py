"""What the metrics say of mirrors: lags, latencies, topics that leave and come back, how many series."""

import math
import time

import pytest
from prometheus_client import CollectorRegistry

from protocol.types import TopicPartition
from replicator.acknowledgements import Difference, Kind
from replicator.metric_table import METRICS, PARTITION
from replicator.metrics import LinkMetrics
from replicator.mirrors.counting import Counting
from replicator.mirrors.partition import MirrorPartition, Piece, State
from replicator.troubles import now_ms

NAME = "east->west"


class Record:
    """Gaps on record."""

    def __init__(self):
        self.found = []

    def of(self, tp):
        return [each for each in self.found if each.tp == tp]


@pytest.fixture
def registry():
    return CollectorRegistry()


def part(number, *, records=0, end=0, source_end=0, topic="orders"):
    made = MirrorPartition(TopicPartition(topic, number), "text", State.COPYING)
    made.records, made.bytes, made.end = records, 50 * records, end
    made.heard(0, source_end, now_ms())
    return made


def counting(registry, record=None, **limits):
    return Counting(LinkMetrics(NAME, registry, **limits), record or Record())


def value(registry, name, partition="0", topic="orders"):
    labels = {"link": NAME, "topic": topic, "partition": str(partition)}
    return registry.get_sample_value(f"isthmus_link_{name}", labels)


def test_lags_in_records_bytes_and_seconds(registry):
    look = counting(registry).look
    mirror = part(0, records=10, end=10, source_end=30)
    look({mirror.tp: mirror})
    assert (value(registry, "lag_records"), value(registry, "lag_bytes")) == (20, 1000)
    look({mirror.tp: mirror})
    assert value(registry, "lag_seconds") > 0
    mirror.end = 30
    look({mirror.tp: mirror})
    assert (value(registry, "lag_records"), value(registry, "lag_seconds")) == (0, 0)


LAGS = ("lag_records", "lag_bytes", "lag_seconds", "lag_record_time_seconds")


def test_beside_a_silent_source_nothing_is_said_to_be_level(registry):
    made, level, behind = counting(registry), part(0, records=10, end=10, source_end=10), part(1)
    behind.heard(0, 7, now_ms())
    never = MirrorPartition(TopicPartition("orders", 2), "text", State.COPYING)
    both = {each.tp: each for each in (level, behind, never)}
    made.look(both)
    assert [value(registry, name) for name in LAGS] == [0, 0, 0, 0]
    assert all(math.isnan(value(registry, name, 2)) for name in LAGS)
    for each in (level, behind):
        each.heard_ms -= 60_000
    made.look(both)
    assert all(math.isnan(value(registry, name)) for name in LAGS)
    assert value(registry, "lag_records", 1) == 7, "so many at least"
    assert math.isnan(value(registry, "lag_bytes", 1)), "nothing was copied that tells how large they are"
    assert made.lags(level).records == 0, "as it was last known, with the words for it"
    assert math.isnan(made.lags(never).records)


def test_lag_by_record_time_counts_from_the_last_piece(registry):
    made, mirror = counting(registry), part(0, end=5, source_end=9)
    made.look({mirror.tp: mirror})
    assert math.isnan(value(registry, "lag_record_time_seconds"))
    made.copied(mirror, piece(5, 40))
    made.look({mirror.tp: mirror})
    assert 40 <= value(registry, "lag_record_time_seconds") < 60
    mirror.end = 9
    made.look({mirror.tp: mirror})
    assert value(registry, "lag_record_time_seconds") == 0


def piece(records, age_s):
    return Piece(0, memoryview(b"batches"), records, 0, int((time.time() - age_s) * 1000))


def test_how_late_records_are_is_told_by_topic_and_partition(registry):
    made, mirror, other = counting(registry), part(0), part(1)
    for each, late in ((mirror, piece(90, 2)), (mirror, piece(10, 30)), (other, piece(5, 7000))):
        made.copied(each, late)
    made.copied(other, Piece(5, None, 5, 5))  # only where the source begins now
    found = made.latency(mirror.tp)
    assert 2 <= found["p50"] < 3
    assert 30 <= found["p99"] <= found["max"] < 33
    assert made.latency(other.tp) is None, "what is older than an hour tells of no link"
    assert {topic: sum(of.values()) for topic, of in made.topic_latencies().items()} == {"orders": 100}
    labels = {"link": NAME, "topic": "orders", "partition": "0", "quantile": "0.5"}
    assert registry.get_sample_value("isthmus_link_partition_latency_quantile_seconds", labels) < 3
    made.look({})
    assert made.latency(mirror.tp) is None, "it is not mirrored here any more"


def test_a_topic_that_leaves_and_comes_back_counts_on(registry):
    look = counting(registry).look
    first, second = part(0, records=10), part(0, records=3)
    look({first.tp: first})
    look({second.tp: second})  # within one look
    assert value(registry, "records_total") == 13
    look({})
    assert value(registry, "lag_records") is None
    third = part(0, records=1)
    look({third.tp: third})
    assert value(registry, "records_total") == 14


def test_mirrors_beyond_the_limit_share_their_series(registry):
    per_partition = sum(metric.labels == PARTITION for metric in METRICS)
    look = counting(registry, max_series=per_partition).look
    mirrors = [part(number, records=1, end=1, source_end=5 + number) for number in range(3)]
    look({each.tp: each for each in mirrors})
    assert value(registry, "lag_records", 0) == 4
    assert value(registry, "lag_records", 1) is None
    assert value(registry, "lag_records", "other", "other") == 5 + 6
    assert value(registry, "records_total", "other", "other") == 2


def test_gaps_are_counted_once_by_their_reason(registry):
    record, mirror = Record(), part(0, records=1)
    record.found.append(Difference(mirror.tp, Kind.GAP, 0, 3, "retention", now_ms() - 60_000))
    look = counting(registry, record).look  # that one is an earlier process's
    for end in (7, 12):
        record.found.append(Difference(mirror.tp, Kind.GAP, end - 2, end, "retention", now_ms()))
        for _ in range(2):
            look({mirror.tp: mirror})
    assert value(registry, "gap_offsets") == 3 + 4
    labels = {"link": NAME, "reason": "retention"}
    assert registry.get_sample_value("isthmus_link_gaps_total", labels) == 2
