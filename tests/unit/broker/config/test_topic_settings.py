"""Topic settings: overrides over broker synonyms over Kafka's defaults, and as DescribeConfigs shows them."""

import pytest

from broker.config import TOPIC_DEFINITIONS, ConfigError, load
from broker.config.dynamic import DYNAMIC
from broker.config.topic_settings import MIRROR_SOURCE
from broker.config.view import Source, broker_entries, topic_entries


@pytest.mark.parametrize(
    ("properties", "expected_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "5"}, 300_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "5", "log.retention.ms": "10"}, 10),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_counts(properties, expected_ms):
    assert load(properties).topic_defaults.retention_ms == expected_ms


def test_overrides_win_over_the_brokers_defaults():
    config = load({"log.segment.bytes": "1000000", "log.cleanup.policy": "compact"})
    topic = config.topic_config({"segment.bytes": "2000000"})
    assert (topic.segment_bytes, topic.cleanup_policy) == (2_000_000, ("compact",))


def test_wrong_overrides_are_all_named():
    with pytest.raises(ConfigError) as caught:
        load({}).topic_config({"retention.mss": "1", "cleanup.policy": "shred", "segment.bytes": "lots"})
    assert len(caught.value.errors) == 3
    assert "did you mean retention.ms?" in caught.value.errors[0]


def test_a_broker_synonym_is_checked_as_the_topic_setting_is():
    with pytest.raises(ConfigError, match=r"log\.message\.timestamp\.type: must be one of"):
        load({"log.message.timestamp.type": "Whenever"})


def test_topic_view_names_sources_and_synonyms():
    config = load({"log.retention.minutes": "5", "log.segment.bytes": "1000000"})
    entries = {entry.name: entry for entry in topic_entries(config, {"segment.bytes": "2000000"})}
    assert set(entries) == set(TOPIC_DEFINITIONS) - {MIRROR_SOURCE}  # Kafka has none of that name
    segment = entries["segment.bytes"]
    assert (segment.value, segment.source) == ("2000000", Source.TOPIC)
    assert [(item.name, item.value, item.source) for item in segment.origins] == [
        ("segment.bytes", "2000000", Source.TOPIC),
        ("log.segment.bytes", "1000000", Source.BROKER_STATIC),
        ("log.segment.bytes", "1073741824", Source.DEFAULT),
    ]
    retention = entries["retention.ms"]
    assert (retention.value, retention.source, retention.origins) == ("300000", Source.DEFAULT, ())
    assert entries["cleanup.policy"].source is Source.DEFAULT
    assert entries["cleanup.policy"].value == "delete"


def test_whose_mirror_a_topic_is_is_shown_where_it_is_one():
    entries = {entry.name: entry for entry in topic_entries(load({}), {MIRROR_SOURCE: "east->west/c/t"})}
    mirror = entries[MIRROR_SOURCE]
    assert (mirror.value, mirror.source, mirror.read_only) == ("east->west/c/t", Source.TOPIC, True)


def test_broker_view_shows_topic_defaults_too():
    entries = {entry.name: entry for entry in broker_entries(load({"log.retention.minutes": "5"}))}
    assert entries["log.retention.minutes"].source is Source.BROKER_STATIC
    assert (entries["log.retention.hours"].value, entries["log.retention.ms"].value) == ("168", None)
    assert entries["num.partitions"].source is Source.DEFAULT
    assert all(entry.read_only == (entry.name not in DYNAMIC) and entry.doc for entry in entries.values())
