"""Python's end of ToolServer.java: run Kafka's command-line tools in one JVM.

`run` waits for a tool, `begin` starts one beside others. Knows nothing about what the tools do.
"""

import base64
import contextlib
import os
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.interop.java import jars
from tests.support.apache_kafka import kafka_script

_LIMIT_S = 180.0

TOOLS = {
    "ConfigCommand": "kafka.admin.ConfigCommand",
    "ConsoleConsumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "ConsumerGroupCommand": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "ShareGroupCommand": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "StreamsGroupCommand": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "ReassignPartitionsCommand": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
}
"""Classes that do not lie in org.apache.kafka.tools."""


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    out: str
    err: str


class ToolServer:
    """One JVM. Its own log goes to `log`."""

    def __init__(self, scratch: Path, log: Path) -> None:
        libs = jars.tools()
        classes = jars.compiled(Path(__file__).with_name("ToolServer.java"), scratch / "classes", f"{libs}/*")
        command = [
            *("java", "-Xmx256m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-Djava.awt.headless=true", "-Dinterop.level=WARN"),
            f"-Dlog4j2.configurationFile=file:{kafka_script().parent / 'log4j2.properties'}",
            *("-cp", os.pathsep.join([str(classes), f"{libs}/*"]), "ToolServer"),
        ]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output
            )
        self._waiting: dict[int, Future[Outcome]] = {}
        self._number = 0
        self._reader = threading.Thread(target=self._read, name="tool-server", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def begin(self, tool: str, *arguments: str, text: str = "") -> Future[Outcome]:
        """Start a tool, named without its package."""
        self._number += 1
        answer = self._waiting[self._number] = Future()
        name = TOOLS.get(tool, f"org.apache.kafka.tools.{tool}")
        words = [str(self._number), name, *(_encode(word) for word in (text, *arguments))]
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words).encode() + b"\n")
        self._process.stdin.flush()
        return answer

    def run(self, tool: str, *arguments: str, text: str = "", limit_s: float = _LIMIT_S) -> Outcome:
        try:
            return self.begin(tool, *arguments, text=text).result(limit_s)
        except TimeoutError:
            shown: Sequence[str] = (tool, *arguments)
            raise AssertionError(f"{' '.join(shown)} does not end within {limit_s:.0f} s") from None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            number, code, out, err = line.split()
            outcome = Outcome(int(code), _decode(out), _decode(err))
            self._waiting.pop(int(number)).set_result(outcome)
        for waiting in self._waiting.values():
            waiting.set_exception(AssertionError("the JVM of the tools has ended"))


def _encode(word: str) -> str:
    return "=" + base64.b64encode(word.encode()).decode()


def _decode(word: bytes) -> str:
    return base64.b64decode(word[1:]).decode(errors="replace")
