"""Settings of brokers and topics that a topology gives: Kafka's names and limits, as the broker checks them.

Works on the plain document, like `references`. The broker checks all of it again; here a mistake is found
before anything is started, and has a line. What needs several settings to be seen is left to the broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.config import ConfigError, parse_topic_settings
from broker.config.load import check_setting

OPERATIONAL = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
"""Settings of topics that `kafka-reassign-partitions` sets when a move begins, and removes at its end."""

Path = tuple[str | int, ...]
Found = tuple[Path, str]


def setting_problems(document: dict[str, Any]) -> Iterator[Found]:
    """(path, message) of every wrong setting of a cluster that is started here."""
    for name, cluster in _mapping(document.get("clusters")).items():
        cluster = _mapping(cluster)
        if not isinstance(cluster.get("brokers"), list):
            continue
        at: Path = ("clusters", str(name))
        yield from _of_brokers((*at, "settings"), cluster.get("settings"))
        for index, broker in enumerate(cluster["brokers"]):
            yield from _of_brokers((*at, "brokers", index, "settings"), _mapping(broker).get("settings"))
        for topic, body in _mapping(cluster.get("topics")).items():
            yield from _of_topics((*at, "topics", str(topic), "configs"), _mapping(body).get("configs"))


def text_of(value: str | int | float | bool) -> str:
    """A value of the file as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_brokers(at: Path, settings: Any) -> Iterator[Found]:
    for name, value in _scalars(settings):
        try:
            check_setting(name, text_of(value))
        except (ValueError, ConfigError) as error:
            yield (*at, name), str(error)


def _of_topics(at: Path, settings: Any) -> Iterator[Found]:
    for name, value in _scalars(settings):
        if name in OPERATIONAL:
            yield (*at, name), "belongs to a move of replicas, which sets and removes it: leave it out"
            continue
        try:
            parse_topic_settings({name: text_of(value)})
        except ConfigError as error:
            yield (*at, name), str(error)


def _scalars(settings: Any) -> Iterator[tuple[str, Any]]:
    """What has the right shape; everything else is the model's to complain about."""
    for name, value in _mapping(settings).items():
        if isinstance(name, str) and isinstance(value, str | int | float | bool):
            yield name, value


def _mapping(node: Any) -> dict[Any, Any]:
    return node if isinstance(node, dict) else {}
