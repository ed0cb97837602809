"""The report about settings: what could not be compared is no agreement."""

import pytest

from protocol.client import ConfigEntry, ConfigSource, TopicMetadata
from protocol.errors import ErrorCode, KafkaError
from replicator import drift
from replicator.discovery import Found, Wanted
from replicator.progress import Progress, ProgressStore
from replicator.settings import LinkSettings

LINK = LinkSettings.model_validate(
    {"source": {"alias": "east", "bootstrap": "a:1"}, "target": {"alias": "west", "bootstrap": "b:1"}}
)


class Cluster:
    def __init__(self, refused=()):
        self.refused = refused

    async def describe_configs(self, names, *, retry):
        for name in names:
            if name in self.refused:
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
        return {name: {"retention.ms": ConfigEntry("7", ConfigSource.TOPIC, False, False)} for name in names}


@pytest.mark.parametrize(("here", "there"), [(["orders"], []), ([], ["east.orders"])])
async def test_settings_that_may_not_be_read_are_a_row_that_is_open(monkeypatch, here, there):
    async def found(*_):
        topics = {
            name: TopicMetadata(name, bytes(16), ErrorCode.NONE, False, {}) for name in ("orders", "pay")
        }
        return Found({name: Wanted(one, f"east.{name}", one) for name, one in topics.items()})

    async def nothing(_):
        return Progress()

    monkeypatch.setattr(drift, "found_now", found)
    monkeypatch.setattr(ProgressStore, "refresh", nothing)
    (row,) = await drift.drift(Cluster(here), Cluster(there), LINK)
    assert (row.topic, row.at_target, row.key, row.open) == ("orders", "east.orders", "settings", True)
    assert "TOPIC_AUTHORIZATION_FAILED" in row.why
