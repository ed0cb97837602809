"""MirrorMaker 2 4.3 in its dedicated mode, or a worker of Connect, as a process of a test: started, stopped
in order, or killed."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.apache_kafka import kafka_libraries, kafka_script

_MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
_WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
_STOP_S = 60


class MirrorMaker:
    """A running one; `log` has everything that it prints."""

    def __init__(self, settings: str, folder: Path, main: str = _MAIN) -> None:
        file = folder / "mm2.properties"
        file.write_text(settings)
        descriptor, name = tempfile.mkstemp(prefix="mm2-", suffix=".log", dir=folder)
        self.log = Path(name)
        log4j = f"-Dlog4j2.configurationFile=file:{kafka_script().parent / 'log4j2.properties'}"
        with os.fdopen(descriptor, "wb") as output:
            self.process = subprocess.Popen(
                [
                    *("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    *("-Djava.awt.headless=true", "-Dinterop.level=INFO", log4j),
                    *("-cp", f"{kafka_libraries()}/*", main, str(file)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def must_run(self) -> None:
        """AssertionError with the end of its log when it has ended by itself."""
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-3000:]

    def stop(self) -> None:
        """SIGTERM: it stores its progress and leaves its groups."""
        self.process.terminate()
        self.process.wait(_STOP_S)

    def kill(self) -> None:
        """SIGKILL: progress is up to a minute old, its groups have members for ten seconds more."""
        self.process.kill()
        self.process.wait(_STOP_S)


@contextlib.contextmanager
def mirrormaker(settings: str, folder: Path) -> Iterator[MirrorMaker]:
    """MirrorMaker 2 with the text of its properties file, ended afterwards. Skips without Java or jars."""
    with _running(settings, folder, _MAIN) as process:
        yield process


@contextlib.contextmanager
def connect_worker(settings: str, folder: Path) -> Iterator[MirrorMaker]:
    """A worker with the text of connect-distributed.properties. Skips without Java or jars."""
    with _running(settings, folder, _WORKER) as process:
        yield process


@contextlib.contextmanager
def _running(settings: str, folder: Path, main: str) -> Iterator[MirrorMaker]:
    kafka_script()
    running = MirrorMaker(settings, folder, main)
    try:
        yield running
    finally:
        running.kill()
