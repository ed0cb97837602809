"""Runs `isthmus demo` as a person would, in a directory of its own, and looks at what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

REPOSITORY = Path(__file__).parents[2]


class DemoRun:
    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self.log = directory.with_suffix(".log")
        with self.log.open("ab") as output:
            self.begin = output.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "isthmus", "demo", "--directory", str(directory), *arguments],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def output(self) -> str:
        """What was printed since this run began (runs in one directory share the file)."""
        return self.log.read_bytes()[self.begin :].decode(errors="replace")

    def wait_for(self, text: str, bound_s: float = 120) -> None:
        until(lambda: text in self.output() or self.process.poll() is not None, bound_s)
        assert text in self.output(), f"'{text}' never came:\n{self.output()}"

    def finish(self, bound_s: float = 420) -> int:
        return self.process.wait(bound_s)

    def report(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.directory / "report.json").read_text())
        return content

    def left_behind(self) -> list[str]:
        """Command lines of processes that still belong to this run."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            line = " ".join(process.info["cmdline"] or [])
            if str(self.directory) in line and process.status() != psutil.STATUS_ZOMBIE:
                found.append(line)
        return found

    def descendants(self, word: str) -> list[int]:
        """Of this run's process tree, with `word` in their command lines."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if word in " ".join(process.cmdline()):
                    found.append(process.pid)
        return found

    def pids(self, kind: str) -> list[int]:
        """Of processes of this run whose command line has `kind`, for example `broker --id 1`."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            line = " ".join(process.info["cmdline"] or [])
            if str(self.directory) in line and kind in line:
                found.append(process.pid)
        return found


@contextlib.contextmanager
def demo(directory: Path, *arguments: str) -> Iterator[DemoRun]:
    run = DemoRun(directory, *arguments)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            os.kill(run.process.pid, signal.SIGKILL)
            run.process.wait()


def until(condition: Callable[[], bool], bound_s: float) -> None:
    end = time.monotonic() + bound_s
    while not condition():
        assert time.monotonic() < end, f"not within {bound_s:g} s"
        time.sleep(0.05)
