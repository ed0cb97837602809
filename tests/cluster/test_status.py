"""`isthmus status` on a running topology whose brokers go one after the other: what waits, and for whom."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.slow import slow
from tests.support.stretched import RunningTopology
from tests.support.waiting import wait_until
from topology.cluster_look import cluster_health

pytestmark = [pytest.mark.cluster, slow("three brokers go and come; unit tests have the rules")]
DOCUMENT: dict[str, Any] = {
    "version": 1,
    "name": "three",
    "datacenters": {"here": {}},
    "clusters": {
        "main": {
            "datacenter": "here",
            "brokers": [{"id": 1}, {"id": 2}, {"id": 3}],
            "settings": {
                "min.insync.replicas": 2,
                "zookeeper.session.timeout.ms": 3000,
                "replica.lag.time.max.ms": 3000,
            },
            "topics": {"t": {"partitions": 2, "replication_factor": 3}},
        }
    },
}
WELL = {
    "total": 2,
    "under_replicated": 0,
    "at_min_isr": 0,
    "under_min_isr": 0,
    "offline": 0,
    "waiting_for_election": 0,
    "leader_away": 0,
    "unwritable": 0,
}


@pytest.mark.timeout(300)
def test_partitions_are_counted_and_those_that_wait_for_a_word_are_named(tmp_path: Path) -> None:
    with RunningTopology(DOCUMENT, tmp_path) as running:
        file = str(running.file)

        def row(code: int = 3) -> dict[str, Any]:
            rows = json.loads(running.command("status", file, "--json", code=code))
            [found] = [each for each in rows if each["kind"] == "cluster"]
            return dict(found)

        def counts() -> dict[str, int]:
            health = asyncio.run(
                cluster_health(running.topology, running.runtime, running.control("status"))
            )["main"]
            return health.as_json().get("partitions", {})

        def wait_counts(what: str, **wanted: int) -> None:
            wait_until(lambda: counts() == {**WELL, **wanted}, what)

        wait_counts("all well")
        assert row(0)["problem"] == ""
        assert "main: 2 partitions of 1 topic: all in sync" in running.command("status", file)
        running.control("kill", "main-broker-3")
        wait_counts("two of three", under_replicated=2, at_min_isr=2)
        running.control("kill", "main-broker-2")
        wait_counts("one of three", under_replicated=2, under_min_isr=2, unwritable=2)
        running.control("kill", "main-broker-1")
        rows = json.loads(running.command("status", file, "--json", code=3))
        assert {each["kind"] for each in rows} == {"zookeeper", "broker"}, "nobody is there to be asked"
        running.control("start", "main-broker-1")  # killed as the last one in sync: waits for a word
        lacking = {"under_replicated": 2, "under_min_isr": 2, "unwritable": 2}
        wait_counts("both wait", **lacking, offline=2, waiting_for_election=2)
        assert row()["waiting_for_election"] == ["t-0", "t-1"]
        told = running.command("status", file, code=3)
        assert "t-0, t-1: no leader until a person says so" in told
        assert f"isthmus elect --cluster main -f {file}" in told
        running.command("elect", "--cluster", "main", "-f", file, "--unclean", "--yes")
        wait_counts("elected", **lacking)
        told = running.command("status", file, code=3)
        assert "main: no partition acknowledges a write with acks=all\nmain: 2 partitions" in told
        assert row()["zookeeper_serves"] is True
        running.control("kill", "main-zookeeper")
        assert row()["problem"].startswith("no ZooKeeper server serves")
