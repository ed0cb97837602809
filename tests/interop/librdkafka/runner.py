"""One process of librdkafka's test-runner: start it, bound it, read its output.

TESTS selects by number, so a process may run several tests; SUBTESTS selects by a part of a subtest's name.
Knows nothing about brokers but an address.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.suite import Result

KAFKA_VERSION = "3.9.0"
"""What the tests are told to expect of the broker."""
_COLOUR = re.compile(r"\x1b\[\d+m")
_SUMMARY = re.compile(r"^\| (\d{4}\w+) +\| +(\w+) \| +([\d.]+)s +\|(.*)$", re.M)
_FAILURE = re.compile(r'^### Test "([^"]+)" failed at .*\n(.*)$', re.M)
_STATES = {"PASSED": "passed", "SKIPPED": "skipped", "DIDNTRUN": "skipped"}


@dataclass(frozen=True, slots=True)
class Job:
    """A number in a scenario: as a whole, or the subtests whose name contains `part`."""

    number: str
    scenario: str
    part: str = ""
    idempotent: bool = False
    three: bool = False
    """Against three brokers in racks, with topics of as many replicas as the test wants."""
    sasl: bool = False
    """With a user and a password; only the subtests that are marked quick, for others want share groups."""

    @property
    def label(self) -> str:
        kinds = ("idempotent" if self.idempotent else "", "three" if self.three else "")
        return "-".join(filter(None, (self.number, self.part, *kinds)))


@dataclass(frozen=True, slots=True)
class Runner:
    folder: Path
    bootstrap: str
    scratch: Path
    tools: Mapping[str, str]
    limit_s: float
    sasl: Mapping[str, str] = field(default_factory=dict)
    """Settings of clients that log in, with an address for them."""

    def run(self, job: Job, names: Sequence[str]) -> list[Result]:
        """A result for each of `names`, the tests of this number that were asked for."""
        config = self.scratch / f"{job.label}.conf"
        settings = {
            "bootstrap.servers": self.bootstrap,
            "test.topic.random": "true",
            "test.timeout.multiplier": "2",
            **(self.sasl if job.sasl else {}),
        }
        config.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
        output = self.scratch / f"{job.label}.log"
        started = time.monotonic()
        code = self._run(job, config, output)
        seconds = time.monotonic() - started
        text = _COLOUR.sub("", output.read_text(errors="replace"))
        if folder := os.environ.get("ISTHMUS_KEEP_OUTPUT"):  # for a person who looks for a cause
            Path(folder).mkdir(parents=True, exist_ok=True)
            Path(folder, f"{job.label}.log").write_text(text)
        return [read_result(name, job.part, text, code, seconds) for name in names]

    def _run(self, job: Job, config: Path, output: Path) -> int:
        with output.open("wb") as sink:
            process = subprocess.Popen(
                [
                    *("./test-runner", "-p1", "-L", "-s", job.scenario),
                    *(["-P"] if job.idempotent else []),
                    *(["-Q"] if job.sasl else []),
                ],
                cwd=self.folder,
                env={
                    **{name: text for name, text in os.environ.items() if name != "CI"},
                    "LD_LIBRARY_PATH": f"{self.folder.parent}/src:{self.folder.parent}/src-cpp",
                    "RDKAFKA_TEST_CONF": str(config),
                    "TESTS": job.number,
                    "TEST_KAFKA_VERSION": KAFKA_VERSION,
                    "BROKERS": self.bootstrap,
                    **({"SUBTESTS": f"do_test_{job.part}"} if job.part else {}),
                    **({"ALL_REPLICAS": "1"} if job.three else {}),
                    **self.tools,
                },
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return process.wait(self.limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return process.wait()


def read_result(name: str, part: str, text: str, code: int, seconds: float) -> Result:
    """What the output says of one test. Without a word on it, or after a crash, the test has failed."""
    whole = name.partition(":")[0]
    failures = {where.split()[0]: why for where, why in reversed(_FAILURE.findall(text))}
    if whole in failures:
        return Result(name, "failed", seconds, failures[whole][:300])
    if code < 0:
        why = failures.get(
            "<MAIN>", "killed: it did not end in time" if code == -signal.SIGKILL else "crashed"
        )
        return Result(name, "failed", seconds, why[:300])
    for found, state, took, note in _SUMMARY.findall(text):
        if found == whole:
            if part and f"[ do_test_{part}" not in text:
                return Result(name, "failed", seconds, f"no subtest do_test_{part} has run")
            return Result(name, _STATES.get(state, "failed"), float(took), " ".join(note.split())[:300])
    return Result(name, "failed", seconds, f"the runner says nothing of it (exit code {code})")
