"""Several links in one process: what is told of one that has ended while the others go on."""

import asyncio
import logging
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from protocol.types import TopicPartition
from replicator import dedicated
from replicator.connected import LinkStatus
from replicator.metrics import LinkMetrics
from replicator.settings import LinkSettings


def link(target: str) -> LinkSettings:
    ends = {"source": {"alias": "east", "bootstrap": "a:1"}, "target": {"alias": target, "bootstrap": "b:1"}}
    return LinkSettings.model_validate(ends)


async def test_a_link_that_has_failed_is_not_running_and_has_no_series(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was "stopping" for ever, and its clusters answered for ever."""
    failed, others = link("west"), link("north")
    goes_on = asyncio.Event()

    async def run_link(settings: LinkSettings, stop: asyncio.Event, registry: Any, *_: Any) -> int:
        LinkMetrics(settings.name, registry).cluster_up.labels(settings.name, "east").set(1)
        if settings is failed:
            return 1
        goes_on.set()
        await stop.wait()
        return 0

    monkeypatch.setattr(dedicated, "run_link", run_link)
    statuses = {one.name: LinkStatus(one.name) for one in (failed, others)}
    registry, stop = CollectorRegistry(), asyncio.Event()
    running = asyncio.create_task(dedicated.run_links([failed, others], stop, registry, statuses))
    await goes_on.wait()
    found = {name: status.to_json() for name, status in statuses.items()}
    assert found["east->west"]["state"] == "not running"
    assert "exit code 1" in found["east->west"]["reason"]
    assert found["east->north"]["state"] == "connecting"
    up = {
        name: registry.get_sample_value("isthmus_link_cluster_up", {"link": name, "cluster": "east"})
        for name in statuses
    }
    assert up == {"east->west": None, "east->north": 1}
    stop.set()
    assert await running == 1


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "link east->west has stopped: it copied 12 records since it was started"),
        (3, "link east->west has stopped: it copied 12 records since it was started; gaps or other"),
        (1, ""),
    ],
)
async def test_the_last_line_of_a_link_that_was_stopped_tells_what_it_did(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int, words: str
) -> None:
    """It ended without a word. One that failed has said why."""

    async def run_link(settings: LinkSettings, stop: asyncio.Event, registry: Any, *_: Any) -> int:
        metrics = LinkMetrics(settings.name, registry)
        for number in (5, 7):
            metrics.of(TopicPartition("orders", number)).records.inc(number)
        await stop.wait()
        return code

    monkeypatch.setattr(dedicated, "run_link", run_link)
    stop = asyncio.Event()
    stop.set()
    with caplog.at_level(logging.INFO, "isthmus.replicator"):
        assert await dedicated.run_links([link("west")], stop, CollectorRegistry()) == code
    said = [record.getMessage() for record in caplog.records]
    assert [text.startswith(words) for text in said] == [True] * bool(words), said
