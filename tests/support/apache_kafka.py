"""A real Apache Kafka beside ours, for interop tests.

The script `kafka.sh` is found through the environment variable ISTHMUS_INTEROP (a folder; default:
`../shared/interop` beside this repository). Without script, Java or jars the test is skipped, and says so.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from topology.runtime import free_ports

_ROOT = Path(__file__).resolve().parents[2]


def kafka_script() -> Path:
    """`kafka.sh`, or a skip that says what is missing."""
    script = Path(os.environ.get("ISTHMUS_INTEROP", _ROOT.parent / "shared" / "interop")) / "kafka.sh"
    if not script.is_file():
        pytest.skip(f"no {script}: set ISTHMUS_INTEROP to the folder that has kafka.sh")
    if shutil.which("java") is None:
        pytest.skip("no java on PATH")
    if not kafka_libraries().is_dir():
        pytest.skip(f"no Kafka jars in {kafka_libraries()}: run '{script} fetch' once")
    return script


def kafka_libraries() -> Path:
    """The folder of Kafka's jars; `kafka_script` says whether it is there."""
    return Path(os.environ.get("INTEROP_HOME", Path.home() / ".cache" / "isthmus-interop")) / "libs"


def kafka_data(name: str, bootstrap: str) -> Path:
    """The log directory of a broker that `apache_kafka` has started under this name."""
    port = bootstrap.rpartition(":")[2]
    return kafka_libraries().parent / "run" / f"{name}-{os.getpid()}-{port}" / "data"


@contextmanager
def apache_kafka(name: str, *settings: str) -> Iterator[str]:
    """Bootstrap address of a fresh single broker (`settings`: `key=value`). Removed at the end."""
    script = kafka_script()
    port, controller_port = free_ports(2)
    name = f"{name}-{os.getpid()}-{port}"
    environment = {
        **os.environ,
        "INTEROP_CONTROLLER_PORT": str(controller_port),
        "INTEROP_WAIT_S": os.environ.get("INTEROP_WAIT_S", "240"),  # two cores may be shared with much else
        "INTEROP_BROKER_HEAP": os.environ.get("INTEROP_BROKER_HEAP", "-Xms128m -Xmx512m"),
    }
    try:
        subprocess.run(
            [str(script), "start", name, str(port), *settings],
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=300,
        )
        yield f"127.0.0.1:{port}"
    finally:
        subprocess.run([str(script), "wipe", name], check=True, stdout=subprocess.DEVNULL, timeout=60)


def kafka_tool(*arguments: str, text: str | None = None, timeout: float = 90) -> str:
    """Output of one of Kafka's tools, given by class name."""
    done = subprocess.run(
        [str(kafka_script()), "tool", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{arguments[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout
