"""C29: a throttled move of replicas is under way, and a tool that declares topics leaves its brake alone."""

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.apache_kafka import kafka_script, kafka_tool
from tests.support.commands import isthmus
from tests.support.moves import KILOBYTE, RATES, THROTTLED, fastest, reassign, throttle, throttle_keys
from tests.support.slow import slow
from tests.support.three_brokers import StartThree, consume, create, in_sync, leader, produce, stored_bytes
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster
RATE = 100_000
RECORDS = 4000
SMALL = {"batch.size": 16_384}
"""At least one whole batch goes at once, whatever the throttle."""
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def topology_file(folder: Path, bootstrap: str, topics: dict[str, Any]) -> str:
    path = folder / f"topology-{time.monotonic_ns()}.yaml"
    document = {
        "version": 1,
        "name": "declared",
        "data_directory": str(folder / "data"),
        "datacenters": {"here": {}},
        "clusters": {"main": {"datacenter": "here", "bootstrap_servers": bootstrap, "topics": topics}},
    }
    YAML(typ="safe").dump(document, path)
    return str(path)


def test_the_plan_shows_a_throttle_as_the_moves_and_applying_leaves_it(
    start_three: StartThree, tmp_path: Path
) -> None:
    made = start_three({"replica.fetch.max.bytes": "20000"})  # steps of a fifth of a second
    create(made, "moving", (1,), config={"retention.ms": "600000"})
    produce(made, "moving", [KILOBYTE] * RECORDS, **SMALL)
    declared = {"moving": {"configs": {"retention.ms": 700_000}}}
    file = topology_file(tmp_path, made.bootstrap, declared)
    throttle(made, RATE, "moving")
    asyncio.run(reassign(made, "moving", [2]))
    wait_until(lambda: stored_bytes(made, 2, "moving") > 0, "the move has begun")
    samples: list[tuple[float, int]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            samples.append((time.monotonic(), stored_bytes(made, 2, "moving")))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        planned = isthmus("topology", "plan", file, "--prune", "--json")
        assert planned.returncode == 3, planned.stderr
        steps = {step["key"]: step for step in json.loads(planned.stdout)}
        assert {key: step["deed"] for key, step in steps.items()} == {
            "retention.ms": "set",
            **dict.fromkeys(THROTTLED, "operational"),
        }
        done = isthmus("topology", "apply", file, "--prune", "--yes")
        assert done.returncode == 0, done.stderr
        assert "moving: retention.ms: 600000 -> 700000" in done.stdout
        assert "belongs to a move of replicas: left alone" in done.stdout
        assert throttle_keys(made, "moving") == sorted((*THROTTLED, *RATES)), "the keys belong to the move"
        assert stored_bytes(made, 1, "moving") > 0, "the move was over before anything was shown"
        again = isthmus("topology", "plan", file, "--prune")
        assert again.returncode == 0, again.stdout
        assert "main: its topics are as declared" in again.stdout
        wait_until(lambda: samples[-1][0] - samples[0][0] > 5, "enough to see how fast it goes")
    finally:
        over.set()
        watching.join(60)
    assert fastest(samples, 4.0) < 1.3 * RATE
    throttle(made, 1000 * RATE, "moving")
    wait_until(lambda: stored_bytes(made, 1, "moving") < 0, "the move is done")
    wait_until(lambda: leader(made, "moving") == 2, "everybody knows")
    assert consume(made, "moving", RECORDS) == [KILOBYTE] * RECORDS


def test_a_file_with_topics_that_collide_in_metrics_is_refused_with_both_lines(tmp_path: Path) -> None:
    file = topology_file(tmp_path, "127.0.0.1:1", {"cur.cu4_x": {}, "other": {}, "cur.cu4.x": {}})
    lines = Path(file).read_text().splitlines()
    told = isthmus("topology", "validate", file, "--json")
    assert told.returncode == 2
    found = {problem["line"]: problem["message"] for problem in json.loads(told.stdout)["problems"]}
    numbers = {name: next(n for n, text in enumerate(lines, 1) if name in text) for name in ("4_x", "4.x")}
    assert found == {
        numbers["4_x"]: "collides with 'cur.cu4.x' in metric names",
        numbers["4.x"]: "collides with 'cur.cu4_x' in metric names",
    }


def plan_file(folder: Path, replicas: list[int]) -> str:
    path = folder / f"plan-{time.monotonic_ns()}.json"
    partition = {"topic": "t", "partition": 0, "replicas": replicas}
    path.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    return str(path)


def killed_when(condition: Callable[[], bool], *arguments: str) -> None:
    """One of Kafka's tools, killed as soon as the condition holds, or ended by itself before."""
    process = subprocess.Popen(
        [str(kafka_script()), "tool", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(lambda: process.poll() is not None or condition(), "the tool has begun")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@slow("Java three times")
@pytest.mark.interop
def test_a_killed_reassigning_command_is_finished_and_takes_its_keys_along(
    start_three: StartThree, tmp_path: Path
) -> None:
    kafka_script()
    made = start_three()
    create(made, "t", (1,))
    produce(made, "t", [KILOBYTE] * RECORDS, **SMALL)
    file = topology_file(tmp_path, made.bootstrap, {"t": {}})
    steps = plan_file(tmp_path, [3])
    where = (REASSIGN, "--bootstrap-server", made.bootstrap, "--reassignment-json-file", steps)
    execute = (*where, "--execute", "--throttle")
    killed_when(lambda: bool(throttle_keys(made, "t")), *execute, str(RATE))
    for _ in range(2):  # what is left of it, or of the whole: never taken for drift
        told = isthmus("topology", "apply", file, "--prune", "--yes")
        assert told.returncode == 0, told.stderr
    kept = throttle_keys(made, "t")
    assert kept, "somebody removed what the move had set"
    moving = stored_bytes(made, 3, "t") >= 0
    kafka_tool(*execute, str(1000 * RATE), *(("--additional",) if moving else ()))
    wait_until(lambda: in_sync(made, "t") == [3] and stored_bytes(made, 1, "t") < 0, "moved", bound_s=90)
    assert "is completed" in kafka_tool(*where, "--verify")
    assert throttle_keys(made, "t") == []
    assert consume(made, "t", RECORDS) == [KILOBYTE] * RECORDS
