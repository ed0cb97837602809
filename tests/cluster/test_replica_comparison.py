"""`isthmus replicas compare`: equal replicas, one that differs, one that is down; Apache Kafka's too."""

import json
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.apache_kafka import apache_kafka
from tests.support.broker import Cluster
from tests.support.commands import isthmus
from tests.support.three_brokers import create, in_sync, produce, three_brokers
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster
Make = Callable[[int], Cluster]
SEGMENT = "00000000000000000000.log"


def values(count: int, tag: str) -> list[bytes]:
    return [f"{tag}-{number}".encode() for number in range(count)]


def test_replicas_are_compared_byte_by_byte(cluster: Make) -> None:
    made = three_brokers(cluster(0))
    create(made, "t", (1, 2, 3), (2, 3, 1))
    create(made, "compacted", (1, 2, 3), config={"cleanup.policy": "compact"})
    produce(made, "t", values(500, "a"))
    produce(made, "t", values(500, "b"), partition=1, **{"compression.type": "lz4"})
    done = isthmus("replicas", "compare", "--cluster", made.bootstrap, "--topic", "t", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = json.loads(done.stdout)
    assert first["differences"] == second["differences"] == 0
    assert list(first["replicas"]) == ["1", "2", "3"]
    assert {each["high_watermark"] for each in first["replicas"].values()} == {500}
    assert first["bytes"] > 0

    # One replica's disk holds another record, with a checksum that holds: only a comparison tells.
    made.brokers[3].stop()
    path = made.brokers[3].directory / "data" / "log" / "t-0" / SEGMENT
    other = path.parent.parent / "t-1" / SEGMENT
    mine = path.read_bytes()
    path.write_bytes(_with_another_value(mine))
    assert len(other.read_bytes()) > 0
    down = isthmus("replicas", "compare", "--cluster", made.bootstrap, "--topic", "t")
    assert down.returncode == 1, "two are equal, the third one was not read"
    assert "broker 3: its broker is down" in down.stderr
    made.brokers[3].start()
    wait_until(lambda: in_sync(made, "t") == [1, 2, 3], "broker 3 in sync")
    found = isthmus(
        "replicas", "compare", "--cluster", made.bootstrap, "--topic", "t", "--topic", "compacted"
    )
    assert found.returncode == 3, found.stdout + found.stderr
    assert "1 DIFFERENCES" in found.stdout
    assert "t-0 differs at offset 0" in found.stderr


def _with_another_value(log: bytes) -> bytes:
    """The first batch's last byte but one is another, and its checksum says so."""
    from crc32c import crc32c

    from protocol.records import read_header

    header = read_header(log)
    changed = bytearray(log)
    changed[header.size - 2] ^= 1
    changed[17:21] = crc32c(bytes(changed[21 : header.size])).to_bytes(4, "big")
    return bytes(changed)


def test_a_missing_topic_is_named(cluster: Make) -> None:
    made = cluster(1)
    done = isthmus("replicas", "compare", "--cluster", made.bootstrap, "--topic", "nowhere")
    assert done.returncode == 2
    assert "topic 'nowhere'" in done.stderr


@pytest.mark.interop
def test_replicas_of_apache_kafka_are_read_too() -> None:
    """One broker only: that followers serve Fetch 11 without any setting is Kafka's KIP-392."""
    with apache_kafka("zk-compare") as bootstrap:
        client = AdminClient({"bootstrap.servers": bootstrap})
        for future in client.create_topics([NewTopic("t", 1, 1)]).values():
            future.result(60)
        done = isthmus("replicas", "compare", "--cluster", bootstrap, "--topic", "t", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(done.stdout)[0]["unread"] == {}
