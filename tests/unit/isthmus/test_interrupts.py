"""Ctrl-C and SIGTERM before a command is ready: not a word, and an exit code that says how it ended."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BOUND_S = 60.0
PROMPT_S = 6.0
"""Clusters that do not answer are waited for longer than that."""
CTRL_C, TERM = signal.SIGINT, signal.SIGTERM
# The process sends itself the signal when it begins to import a module.
STRIKING = """
import os, sys

class Striking:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["STRIKE_AT"]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), int(os.environ["STRIKE_WITH"]))

sys.meta_path.insert(0, Striking())
"""
NOWHERE = "127.0.0.1:1"
LISTENER = "PLAINTEXT://127.0.0.1:0"
BROKER = ["broker", "--id", "1", "--zookeeper", NOWHERE, "--listener", LISTENER, "--data", "D"]
COPY = ["copy", "--from", NOWHERE, "--to", NOWHERE, "--topics", "orders"]
STOPPED, INTERRUPTED = (0, 0), (130, 143)


@contextmanager
def begun(words: list[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "isthmus", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [CTRL_C, TERM])
@pytest.mark.parametrize(
    ("words", "module", "codes"),
    [
        (BROKER, "broker.process", STOPPED),
        (["zookeeper", "--data", "D"], "broker.control.embedded_zookeeper", STOPPED),
        (["object-store"], "moto.server", STOPPED),
        (["monitor", "--cluster", NOWHERE, "--port=0"], "isthmus.commands.monitor", STOPPED),
        (["monitor", "--cluster", NOWHERE], "isthmus.commands.monitor", INTERRUPTED),
        (["up", "examples/two-datacenters.yaml"], "topology.supervisor", INTERRUPTED),
        (["replicate", "examples/links.yaml"], "replicator.dedicated", INTERRUPTED),
        (COPY, "replicator.copying", INTERRUPTED),
        (["consume", "orders", "--cluster", NOWHERE], "confluent_kafka", INTERRUPTED),
        (["--help"], "typer", INTERRUPTED),
    ],
)
def test_before_a_command_is_ready(
    words: list[str], module: str, codes: tuple[int, int], number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(STRIKING)
    words = [str(tmp_path / "data") if word == "D" else word for word in words]
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    with begun(words, PYTHONPATH=path, STRIKE_AT=module, STRIKE_WITH=str(int(number))) as process:
        ended = process.communicate(timeout=BOUND_S)
    assert (process.returncode, *ended) == (codes[number == TERM], "", "")


@pytest.mark.parametrize("number", [CTRL_C, TERM])
@pytest.mark.parametrize(
    ("words", "codes"),
    [
        (["consume", "orders"], INTERRUPTED),
        (["monitor"], INTERRUPTED),
        (["monitor", "--port", "0"], STOPPED),
        (["probe", "--port", "0"], STOPPED),
    ],
)
def test_while_a_cluster_does_not_answer(
    words: list[str], codes: tuple[int, int], number: signal.Signals
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(BOUND_S)
        cluster = f"127.0.0.1:{silent.getsockname()[1]}"
        with begun([*words, "--cluster", cluster]) as process, silent.accept()[0]:
            process.send_signal(number)
            _, errors = process.communicate(timeout=PROMPT_S)
    assert (process.returncode, errors) == (codes[number == TERM], "")


def test_while_there_is_no_zookeeper(tmp_path: Path) -> None:
    with begun([*BROKER[:-1], str(tmp_path)]) as process:
        assert process.stderr is not None
        assert "no ZooKeeper has answered" in process.stderr.readline()
        process.terminate()
        _, errors = process.communicate(timeout=PROMPT_S)
    assert (process.returncode, errors) == (0, "")


def test_a_signal_that_is_switched_off_stays_so(tmp_path: Path) -> None:
    """As in `nohup isthmus … &` of a script."""
    code = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.argv = ["isthmus", "drill", "verbs"]
from isthmus.__main__ import main
signal.raise_signal(signal.SIGINT)
try:
    main()
finally:
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
