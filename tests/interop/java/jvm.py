"""A JVM of a test as a process: started with a class path, killed hard, ended for sure."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.apache_kafka import kafka_script


class Jvm:
    """`output` has everything it printed; its log is in there too, unless `quiet` sends it elsewhere."""

    def __init__(self, classpath: Sequence[str], *command: str, folder: Path, heap: str = "256m") -> None:
        descriptor, name = tempfile.mkstemp(prefix="jvm-", suffix=".log", dir=folder)
        self.log = Path(name)
        flags = (f"-Xmx{heap}", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        settings = f"-Dlog4j2.configurationFile=file:{kafka_script().parent / 'log4j2.properties'}"
        with os.fdopen(descriptor, "wb") as output:
            self.process = subprocess.Popen(
                [
                    *("java", *flags, "-Djava.awt.headless=true", "-Dinterop.level=WARN", settings),
                    *("-cp", os.pathsep.join(classpath), *command),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL; nothing when it has ended."""
        self.process.kill()
        self.process.wait()

    def wait(self, timeout_s: float) -> int:
        """Exit code; AssertionError with the end of its output when it does not end."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended within {timeout_s:.0f} s: …{self.output[-1500:]}") from None
