"""Jars that the Java suites need beside Kafka's tools: fetched once with Maven, kept outside the repository.

Kafka's tools come with `kafka.sh fetch` (tests/support/apache_kafka.py). Here are Kafka Streams,
Connect's file connectors, clients of older releases, and the compiler for the suites' own classes.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.interop.suite import ToolChainMissing, build_step, cache, need
from tests.support.apache_kafka import kafka_script

_POM = Path(__file__).with_name("pom.xml")
_FETCH_TIMEOUT_S = 600.0


def tools() -> Path:
    """Kafka's tools, broker and Connect runtime; pytest's Skipped when they cannot be had."""
    kafka_script()
    return Path(os.environ.get("INTEROP_HOME", Path.home() / ".cache" / "isthmus-interop")) / "libs"


def streams_and_file_connectors() -> Path:
    """A folder with Kafka Streams, connect-file and all they need."""
    digest = hashlib.sha256(_POM.read_bytes()).hexdigest()[:12]
    return _fetched(f"libs-{digest}", "-f", str(_POM), "dependency:copy-dependencies")


def clients(version: str) -> Path:
    """A folder with that one kafka-clients jar."""
    artifact = f"org.apache.kafka:kafka-clients:{version}"
    return _fetched(f"kafka-clients-{version}", "dependency:copy", f"-Dartifact={artifact}")


def _fetched(name: str, *goal: str) -> Path:
    home = cache("java")
    folder = home / name
    if folder.is_dir():
        return folder
    need("mvn", "java")
    part = home / f"{name}.{os.getpid()}"
    build_step(
        ["mvn", "-q", "-B", *goal, f"-DoutputDirectory={part}"], home, home / "maven.log", _FETCH_TIMEOUT_S
    )
    try:
        part.rename(folder)
    except OSError:  # another run was quicker
        shutil.rmtree(part, ignore_errors=True)
    return folder


def compiled(source: Path, into: Path, classpath: str) -> Path:
    """Compile one Java file against a class path; returns the folder of classes."""
    need("javac")
    into.mkdir(parents=True, exist_ok=True)
    command = ["javac", "-nowarn", "-d", str(into), "-cp", classpath, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise ToolChainMissing(f"javac {source.name}: {done.stderr.strip()[-500:]}")
    return into
