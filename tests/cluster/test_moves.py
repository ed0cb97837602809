"""Replicas that move between three brokers in racks: no faster than the throttle, by Kafka's tools too."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType

from tests.support.apache_kafka import kafka_script, kafka_tool
from tests.support.broker import Cluster
from tests.support.moves import (
    KILOBYTE,
    RATES,
    THROTTLED,
    configure,
    fastest,
    reassign,
    throttle,
    throttle_keys,
)
from tests.support.slow import slow
from tests.support.three_brokers import (
    consume,
    create,
    in_sync,
    leader,
    produce,
    stored_bytes,
    three_brokers,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster
Make = Callable[[int], Cluster]

RATE = 400_000
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"


def test_a_move_goes_no_faster_than_its_throttle_and_the_isr_is_not_held_back(cluster: Make) -> None:
    made = three_brokers(cluster(0), {"replica.fetch.max.bytes": "100000"})  # steps of a quarter of a second
    create(made, "moving", (1,))
    create(made, "steady", (1, 2, 3))
    produce(made, "moving", [KILOBYTE] * 6000)
    throttle(made, RATE, "moving", "steady")
    asyncio.run(reassign(made, "moving", [2]))
    wait_until(lambda: stored_bytes(made, 2, "moving") > 0, "the move has begun")
    samples: list[tuple[float, int]] = []
    acknowledged_at: list[float] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            samples.append((time.monotonic(), stored_bytes(made, 2, "moving")))

    def load() -> None:
        produce(made, "steady", [KILOBYTE] * 7000)
        acknowledged_at.append(time.monotonic())

    threads = [threading.Thread(target=each) for each in (watch, load)]
    for thread in threads:
        thread.start()
    try:
        configure(made, ResourceType.TOPIC, "moving", {"retention.ms": "-1"})  # C29: somebody else's tool
        assert throttle_keys(made, "moving") == sorted((*THROTTLED, *RATES)), "the keys belong to the move"
        wait_until(lambda: stored_bytes(made, 1, "moving") < 0, "the move is done")
        done_at = time.monotonic()
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
    wait_until(lambda: leader(made, "moving") == 2, "everybody knows")
    assert acknowledged_at, "writing stood still"
    assert acknowledged_at[0] < done_at, "more for members of the ISR took as long as the throttled move"
    # A stall of seconds, as of a busy machine, is made up for within the quota's own window.
    assert fastest(samples, 8.0) < 1.5 * RATE
    assert consume(made, "moving", 6000) == [KILOBYTE] * 6000


def plan(tmp_path: Path, **replicas: Sequence[int]) -> str:
    partitions = [
        {"topic": topic, "partition": 0, "replicas": list(each)} for topic, each in replicas.items()
    ]
    path = tmp_path / f"plan-{time.monotonic_ns()}.json"
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


@slow("starts Java")
@pytest.mark.interop
def test_kafka_reassign_partitions_with_a_throttle_verify_and_cancel(cluster: Make, tmp_path: Path) -> None:
    kafka_script()
    made = three_brokers(cluster(0))
    create(made, "t", (1,))
    produce(made, "t", [KILOBYTE] * 8000)
    where = ("--bootstrap-server", made.bootstrap)
    wider = plan(tmp_path, t=[3, 1, 2])

    def tool(step: str, file: str, *more: str) -> str:
        return kafka_tool(REASSIGN, *where, "--reassignment-json-file", file, step, *more)

    assert "Successfully started" in tool("--execute", wider, "--throttle", str(RATE))
    assert throttle_keys(made, "t") == sorted((*THROTTLED, *RATES))
    wait_until(lambda: stored_bytes(made, 2, "t") > 0, "it copies")
    assert "still in progress" in tool("--verify", wider)
    assert throttle_keys(made, "t") == sorted((*THROTTLED, *RATES)), "the move goes on, and so do its keys"
    assert "Successfully cancelled" in tool("--cancel", wider)
    assert throttle_keys(made, "t") == []
    wait_until(lambda: stored_bytes(made, 2, "t") < 0 and stored_bytes(made, 3, "t") < 0, "as before")
    assert in_sync(made, "t") == [1]

    assert "Successfully started" in tool("--execute", wider, "--throttle", "100000000")
    wait_until(lambda: in_sync(made, "t") == [1, 2, 3], "more replicas")
    assert "is completed" in tool("--verify", wider)
    assert throttle_keys(made, "t") == []
    fewer = plan(tmp_path, t=[2, 3])
    tool("--execute", fewer)
    wait_until(lambda: in_sync(made, "t") == [2, 3] and stored_bytes(made, 1, "t") < 0, "fewer replicas")
    assert "is completed" in tool("--verify", fewer)
    assert consume(made, "t", 8000) == [KILOBYTE] * 8000


@slow("starts Java")
@pytest.mark.interop
def test_kafka_leader_election_preferred_and_unclean(cluster: Make) -> None:
    kafka_script()
    made = three_brokers(cluster(0))
    create(made, "t", (1, 2, 3))
    where = ("--bootstrap-server", made.bootstrap)
    one = ("--topic", "t", "--partition", "0")
    made.brokers[1].stop()
    wait_until(lambda: leader(made, "t") != 1, "another leader")
    made.brokers[1].start()
    wait_until(lambda: in_sync(made, "t") == [1, 2, 3], "all in sync")
    told = kafka_tool(ELECT, "--bootstrap-server", made.bootstrap, "--election-type", "preferred", *one)
    assert "Successfully completed leader election (PREFERRED)" in told
    wait_until(lambda: leader(made, "t") == 1, "the preferred leader")
    values = produce(made, "t", [f"{number}".encode() for number in range(100)])
    made.brokers[2].kill()
    made.brokers[3].kill()
    wait_until(lambda: in_sync(made, "t") == [1], "broker 1 alone")
    made.brokers[1].kill()
    for number in (2, 3, 1):
        made.brokers[number].start()
    assert leader(made, "t") == -1
    where = ("--bootstrap-server", made.bootstrap)
    told = kafka_tool(ELECT, *where, "--election-type", "unclean", *one)
    assert "Successfully completed leader election (UNCLEAN)" in told
    wait_until(lambda: in_sync(made, "t") == [1, 2, 3], "all in sync")
    assert consume(made, "t", 100) == values
