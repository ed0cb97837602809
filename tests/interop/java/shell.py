"""A session with Kafka's tools against one broker, recorded in a form that two brokers can be compared by.

`Shell.run` records command, exit code and output without what is each broker's own: ports, ids, times,
folders. A scenario is a function of a `Shell`; `ask` looks without recording, `until` waits with a bound.
"""

import difflib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.java.tool_server import Outcome, ToolServer

_BOUND_S = 120.0
_OWN: Sequence[tuple[str, str]] = (
    (r"\s+", " "),
    (r"^.*\bconsole-consumer-\d+(?![\w-]).*$", ""),  # groups with a name at random, left by other scenarios
    (r"^\d{4}-\d\d-\d\dT\S+ (WARN|ERROR) .*", ""),  # the tool's log says it once more
    (r"^ToolServer\$Ended: exit", ""),
    (r"(\w+(?:Exception|Error)): .*", r"\1"),  # texts of errors are each broker's own; their kinds are not
    (r"(Error while executing topic command :) .*", r"\1"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uuid>"),
    (r"(localhost|127\.0\.0\.1):\d+", "<broker>"),
    (r"\bconsumer-([\w.]+?)-\d+\b", r"consumer-\1-<n>"),
    (r"(TopicId: |Topic ID: |topicId=|Cluster ID: )[\w-]{22}", r"\1<id>"),
    (r"(?<![\d.])1[6-9]\d{11}(?!\d)", "<ms>"),
    (r"(?<=\")/[\w./-]+(?=\")", "<folder>"),
    (r"(: |=)/[\w./-]*/[\w./-]+", r"\1<folder>"),
    (r"^(\d+ 127\.0\.0\.1) \d+ ", r"\1 <port> "),
    (r"(?<=[ :])/\S+/(?=\w)", ""),
    (r"(topicId\":)\"[\w-]{22}\"", r'\1"<id>"'),
)


@dataclass
class Shell:
    """`lines` is the record. `where` tells the scenario's name to name its topics."""

    tools: ToolServer
    bootstrap: str
    scratch: Path
    lines: list[str] = field(default_factory=list)

    def ask(self, tool: str, *arguments: str, text: str = "") -> Outcome:
        """Run a tool without recording it."""
        return self.tools.run(tool, *self._with_broker(arguments), text=text)

    def begin(self, tool: str, *arguments: str, text: str = "") -> Future[Outcome]:
        """Start a tool beside others; `record` its outcome when it has ended."""
        return self.tools.begin(tool, *self._with_broker(arguments), text=text)

    def run(self, tool: str, *arguments: str, text: str = "", any_order: bool = False) -> Outcome:
        """Run a tool and record what it said; `any_order` for output without an order of its own."""
        outcome = self.ask(tool, *arguments, text=text)
        self.record((tool, *arguments), outcome, any_order=any_order)
        return outcome

    def record(self, command: Iterable[str], outcome: Outcome, *, any_order: bool = False) -> None:
        self.note(f"$ {' '.join(command)} -> {outcome.code}")
        for stream in (outcome.out, outcome.err):
            found = [line for line in stream.splitlines() if not line.lstrip().startswith("at ")]
            for line in sorted(found) if any_order else found:
                self.note(line)

    def note(self, line: str) -> None:
        """Record a line, or what a scenario has found out by itself."""
        for pattern, replacement in _OWN:
            line = re.sub(pattern, replacement, line)
        topic, mark, settings = line.partition("Configs: ")
        if mark:  # without order; Kafka 4's controller sets min.insync.replicas by itself
            given = sorted(each for each in settings.strip().split(",") if each != "min.insync.replicas=1")
            line = f"{topic}{mark}{','.join(given)}"
        if line.strip() not in ("", "exit"):
            self.lines.append(line.strip())

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _BOUND_S
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {_BOUND_S:.0f} s: {what}")
            time.sleep(0.05)

    def file(self, name: str, text: str) -> str:
        """A file for a tool that wants one; the path is the same for both brokers."""
        path = self.scratch / name
        path.write_text(text)
        return str(path)

    def _with_broker(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        if "--bootstrap-server" in arguments:
            return arguments
        if arguments and arguments[0] in ("cluster-id", "list-endpoints"):
            return (*arguments, "--bootstrap-server", self.bootstrap)
        return ("--bootstrap-server", self.bootstrap, *arguments)


def differences(kafka: Sequence[str], ours: Sequence[str], known: Sequence[str] = ()) -> list[str]:
    """Lines that only one of them said, but those that a pattern of `known` describes."""
    found = difflib.unified_diff(kafka, ours, "kafka", "isthmus", lineterm="", n=1)
    patterns = [re.compile(pattern) for pattern in known]
    lines = list(found)
    wrong = [
        line
        for line in lines[2:]
        if line[0] in "+-" and not any(pattern.search(line[1:]) for pattern in patterns)
    ]
    return lines if wrong else []
