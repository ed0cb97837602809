"""`isthmus status` where brokers use the operator's own ZooKeeper ensemble, which is cut."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ensemble import TestEnsemble
from tests.support.stretched import RunningTopology
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[TestEnsemble]:
    with TestEnsemble(tmp_path, {"a": (1,), "b": (2,), "c": (3,)}) as made:
        yield made


def test_an_ensemble_of_the_operator_without_a_quorum_is_named_with_its_addresses(
    ensemble: TestEnsemble, tmp_path: Path
) -> None:
    document: dict[str, Any] = {
        "version": 1,
        "name": "guests",
        "datacenters": {"here": {}},
        "clusters": {
            "main": {
                "datacenter": "here",
                "zookeeper": {"connect": f"{ensemble.connect}/kafka"},
                "brokers": [{"id": 1}, {"id": 2}],
                "settings": {"zookeeper.session.timeout.ms": 3000},
                "topics": {"t": {"partitions": 1, "replication_factor": 2}},
            }
        },
    }
    addresses = ensemble.connect.split(",")
    with RunningTopology(document, tmp_path / "topology") as running:

        def row() -> dict[str, Any]:
            done, _ = running.status("--json")
            [found] = [each for each in json.loads(done.stdout) if each["kind"] == "cluster"]
            assert done.returncode == (3 if found["problem"] else 0)
            return dict(found)

        wait_until(lambda: not row()["problem"], "all well")
        assert row()["zookeeper"] == dict.fromkeys(addresses, "serves")
        ensemble.cut()
        found: dict[str, Any] = {}

        def nothing_is_written() -> bool:
            found.update(row())
            return found["unwritable"] == ["t-0"] and found["zookeeper_serves"] is False

        wait_until(nothing_is_written, "no quorum, no writes")
        assert found["zookeeper"] == dict.fromkeys(addresses, "no quorum")
        assert found["problem"].startswith("no ZooKeeper server serves")
        assert f"{', '.join(addresses)}: no quorum" in found["problem"]
        assert "that ensemble is not run from here" in found["problem"]
        assert "no partition acknowledges a write with acks=all" in found["problem"]
        ensemble.heal()
        wait_until(lambda: not row()["problem"], "all well again")
