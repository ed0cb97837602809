"""A broker with two log directories of which one, then both, are taken away while it runs."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import TEST_SETTINGS

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[2]


def sent(bootstrap: str, partition: int) -> int | None:
    """Code of the error that a single try to produce ends with; None when it was stored."""
    found: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 20_000, "retries": 0})
    producer.produce("t", b"x", partition=partition, on_delivery=lambda error, _: found.append(error))
    producer.flush(30)
    return None if found[0] is None else found[0].code()


def test_a_lost_directory_takes_only_its_partitions(zookeeper: str, tmp_path: Path) -> None:
    settings = {
        **TEST_SETTINGS,
        "log.dirs": f"{tmp_path}/a,{tmp_path}/b",
        "log.flush.offset.checkpoint.interval.ms": "500",
    }
    command = [sys.executable, "-m", "isthmus", "broker", "--id", "1", "--zookeeper", zookeeper]
    command += ["--listener", "PLAINTEXT://127.0.0.1:0"]
    command += [part for name, text in settings.items() for part in ("--set", f"{name}={text}")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            assert process.stdout is not None
            bootstrap = process.stdout.readline().split("PLAINTEXT://")[1].split()[0]
            admin = AdminClient({"bootstrap.servers": bootstrap})
            admin.create_topics([NewTopic("t", 2, 1)])["t"].result(60)
            assert [sent(bootstrap, 0), sent(bootstrap, 1)] == [None, None]
            lost = 0 if (tmp_path / "a" / "t-0").is_dir() else 1
            shutil.rmtree(tmp_path / "a")
            deadline = time.monotonic() + 60
            while sent(bootstrap, lost) != KafkaError.KAFKA_STORAGE_ERROR:
                assert time.monotonic() < deadline
            assert sent(bootstrap, 1 - lost) is None
            shutil.rmtree(tmp_path / "b")
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "every log directory has failed" in errors.splitlines()[-1]
    assert errors.count("has failed and is out of use") == 2
