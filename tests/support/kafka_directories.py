"""Apache Kafka's servers and its DumpLogSegments over log directories, of the newest release and of 3.9.

A server is stopped and started again over one data directory, so a test may do something to it meanwhile.
Release 3.9 is in `$INTEROP_HOME/kafka-3.9/libs`; with ISTHMUS_SLOW=1 Maven fetches it there once.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.support.apache_kafka import kafka_script
from tests.support.slow import SLOW
from topology.runtime import free_ports

NEWEST: Final = "4.3"
BEFORE_4: Final = "3.9"
_DUMP: Final = {NEWEST: "org.apache.kafka.tools.DumpLogSegments", BEFORE_4: "kafka.tools.DumpLogSegments"}
_POM: Final = Path(__file__).parent / "kafka-3.9.xml"

# What the tool says of every segment that does not start at offset 0, also of Kafka's own.
_REMARK = re.compile(r"^Non-consecutive offsets in \S+\n  -1 is followed by \d+\n?", re.MULTILINE)
_HOLES = re.compile(r"^(Non-consecutive offsets in \S+|  -?\d+ is followed by \d+)\n?", re.MULTILINE)


def _home(release: str) -> Path:
    home = Path(os.environ.get("INTEROP_HOME", Path.home() / ".cache" / "isthmus-interop"))
    return home if release == NEWEST else home / f"kafka-{release}"


def environment(release: str) -> dict[str, str]:
    """For `kafka.sh`: whose jars to use."""
    return {**os.environ, "INTEROP_HOME": str(_home(release))}


def earlier_kafka() -> None:
    """Makes sure that Kafka 3.9 is there, or skips the test and says what is missing."""
    kafka_script()
    libraries = _home(BEFORE_4) / "libs"
    if libraries.is_dir():
        return
    if not SLOW or shutil.which("mvn") is None:
        pytest.skip(f"no Kafka {BEFORE_4} in {libraries}: ISTHMUS_SLOW=1 and Maven on PATH fetch it")
    incomplete = libraries.with_name(f"libs.{os.getpid()}")
    fetched = subprocess.run(
        [
            "mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies",
            f"-DoutputDirectory={incomplete}",
        ],
        check=False, timeout=900,
    )  # fmt: skip
    if fetched.returncode != 0:
        shutil.rmtree(incomplete, ignore_errors=True)
        pytest.skip(f"Maven could not fetch Kafka {BEFORE_4}")
    incomplete.rename(libraries)


class Unsound(AssertionError):
    """The tool found damage."""


def dump(
    directories: Path | Sequence[Path],
    *options: str,
    kinds: tuple[str, ...] = ("log", "index", "timeindex"),
    holes: bool = False,
    release: str = NEWEST,
) -> str:
    """What the tool prints. It complains on its standard error, and ends with 0 all the same.

    With `holes` offsets may be missing, as compaction leaves them.
    """
    places = [directories] if isinstance(directories, Path) else directories
    files = sorted(str(path) for place in places for kind in kinds for path in place.glob(f"*.{kind}"))
    done = subprocess.run(
        [str(kafka_script()), "tool", _DUMP[release], "--files", ",".join(files), *options],
        env=environment(release), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    complaints = (_HOLES if holes else _REMARK).sub("", done.stderr).splitlines()
    complaints += [line for line in done.stdout.splitlines() if "isvalid: false" in line]
    if complaints:
        raise Unsound("\n".join(complaints))
    return done.stdout


class Kafka:
    """A single Apache Kafka that is stopped and started again over one data directory."""

    def __init__(self, name: str, release: str = NEWEST) -> None:
        self._port, controller = free_ports(2)
        self._name = f"{name}-{os.getpid()}-{self._port}"
        self._environment = {
            **environment(release),
            "INTEROP_CONTROLLER_PORT": str(controller),
            "INTEROP_WAIT_S": os.environ.get("INTEROP_WAIT_S", "240"),
            "INTEROP_BROKER_HEAP": "-Xms128m -Xmx384m",
        }
        self._run = _home(release) / "run" / self._name
        self.data = self._run / "data"
        self.bootstrap = f"127.0.0.1:{self._port}"

    def run(self, verb: str, *arguments: str) -> None:
        subprocess.run(
            [str(kafka_script()), verb, self._name, *arguments],
            env=self._environment, check=True, stdout=subprocess.DEVNULL, timeout=300,
        )  # fmt: skip

    def start(self, *settings: str) -> None:
        self.run(
            "start",
            str(self._port),
            "offsets.topic.num.partitions=1",
            "transaction.state.log.num.partitions=1",
            *settings,
        )

    def kill(self) -> None:
        """SIGKILL: nothing is written any more, no marker of a clean end."""
        os.kill(int((self._run / "pid").read_text()), signal.SIGKILL)
        self.run("stop")
