"""A broker with two log directories of which one is full: real processes, a disk of a few megabytes."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import TEST_SETTINGS
from tests.support.stored_values import stored

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[2]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A directory with room for 8 MB."""
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command to make a small file system with")
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here (root may): {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@contextlib.contextmanager
def broker(zookeeper: str, directories: list[Path]) -> Iterator[str]:
    """Its address while it runs; it ends by SIGKILL."""
    settings = {**TEST_SETTINGS, "log.dirs": ",".join(map(str, directories)), "log.segment.bytes": "1048576"}
    command = [sys.executable, "-m", "isthmus", "broker", "--id", "1", "--zookeeper", zookeeper]
    command += ["--listener", "PLAINTEXT://127.0.0.1:0"]
    command += [part for name, text in settings.items() for part in ("--set", f"{name}={text}")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "PLAINTEXT://" in line, "the broker did not start"
            yield line.split("PLAINTEXT://")[1].split()[0]
        finally:
            process.kill()


def fill(directory: Path) -> None:
    """Take what room is left."""
    with contextlib.suppress(OSError), (directory / "filler").open("ab", buffering=0) as filler:
        while filler.write(b"x" * 4096):
            pass


def sent(bootstrap: str, partition: int, value: bytes, *, timeout_ms: int = 60_000) -> int | None:
    """Code of the error that a single try to produce ends with; None when it was stored."""
    found: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": timeout_ms, "retries": 0})
    producer.produce("t", value, partition=partition, on_delivery=lambda error, _: found.append(error))
    producer.flush(90)
    return None if found[0] is None else found[0].code()


def test_a_full_directory_takes_only_itself_away(zookeeper: str, small: Path, tmp_path: Path) -> None:
    roomy = tmp_path / "roomy"
    roomy.mkdir()
    with broker(zookeeper, [small, roomy]) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(60)
        full = 0 if (small / "t-0").is_dir() else 1
        acknowledged: list[bytes] = []
        for number in range(40):
            value = b"%d" % number * 250_000
            if (code := sent(bootstrap, full, value)) is not None:
                assert code == KafkaError.KAFKA_STORAGE_ERROR
                break
            acknowledged.append(value)
        else:
            pytest.fail("40 records of 250 kB and more fitted into 8 MB")
        fill(small)
        assert sent(bootstrap, 1 - full, b"meanwhile") is None
    for pattern in ("*.index", "*.timeindex", "*.snapshot"):
        for path in (small / f"t-{full}").glob(pattern):
            path.unlink()  # recovery makes them again, and that needs room
    fill(small)
    with broker(zookeeper, [small, roomy]) as bootstrap:
        # KAFKA_STORAGE_ERROR, or no leader to send to, once the controller has heard of it.
        assert sent(bootstrap, full, b"no", timeout_ms=5000) is not None
        assert sent(bootstrap, 1 - full, b"after a start without room") is None
    (small / "filler").unlink()
    with broker(zookeeper, [small, roomy]) as bootstrap:
        assert stored(bootstrap, full) == acknowledged
        assert sent(bootstrap, full, b"again") is None
        assert stored(bootstrap, 1 - full) == [b"meanwhile", b"after a start without room"]
