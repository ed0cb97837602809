"""The simulated network of a run: the relay process, and faults on what flows through it.

Names: brokers `b1`…, ZooKeeper servers `z1`… for their clients, `q1`… for the quorum's connections and
`e1`… for elections, and `client` for whoever else dials. Must not know what a fault is good for (`faults`).
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypedDict

Wire = tuple[str, str, str]
"""(who dials, whom, `there` or `back`)."""


class Fault(TypedDict, total=False):
    held: bool
    refused: bool
    delay_s: float
    bytes_per_s: float


def flows(source: str, target: str) -> list[Wire]:
    """All that `source` sends to `target`, whoever has dialled."""
    return [(source, target, "there"), (target, source, "back")]


def both(one: str, other: str) -> list[Wire]:
    return flows(one, other) + flows(other, one)


class Network:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.relay"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            text=True,
        )
        self._lock = threading.Lock()
        self._tokens = itertools.count(1)
        self.ports: dict[str, int] = {}
        """Where each target is reached through the relay."""

    def _ask(self, **command: object) -> object:
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        assert answer, f"the relay has ended with {self._process.poll()}"
        return json.loads(answer)

    def listen(self, target: str) -> int:
        """A port for the target; `point` says where that really is."""
        port = self._ask(do="listen", target=target)
        assert isinstance(port, int)
        self.ports[target] = port
        return port

    def point(self, target: str, port: int) -> None:
        self._ask(do="point", target=target, port=port)

    def name(self, pid: int, name: str) -> None:
        """Connections that this process dials are `name`'s."""
        self._ask(do="name", pid=pid, name=name)

    @contextmanager
    def disturbed(self, wires: Iterable[Wire], fault: Fault) -> Iterator[None]:
        """The fault is there for as long as the context lasts."""
        token = f"fault {next(self._tokens)}"
        self._ask(do="disturb", token=token, flows=list(wires), fault=fault)
        try:
            yield
        finally:
            self._ask(do="clear", token=token)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
