"""Kafka's own jars, for tests that compare with them: found, or the test is skipped aloud."""

import os
from pathlib import Path

import pytest

CURRENT = ("kafka-clients-4.3.1", "kafka-group-coordinator-4.3.1", "kafka-transaction-coordinator-4.3.1")
LAST_WITH_ZOOKEEPER = "kafka-clients-3.9.1"
ZOOKEEPER_MODE = [
    f"{api}{kind}"
    for api in ("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown")
    for kind in ("Request", "Response")
]
"""Messages that exist only up to 3.9."""


def available() -> dict[str, Path]:
    """Jars by name without ".jar": what the interop tools fetched, and the paths in ISTHMUS_KAFKA_JARS."""
    home = Path(os.environ.get("INTEROP_HOME", "~/.cache/isthmus-interop")).expanduser()
    given = [Path(path) for path in os.environ.get("ISTHMUS_KAFKA_JARS", "").split(os.pathsep) if path]
    paths = [*home.glob("libs/*.jar"), *home.glob("*.jar"), *(path for path in given if path.exists())]
    return {path.stem: path for path in paths}


def jars(*names: str) -> list[Path]:
    """The jars of these names, or a skip that says what is missing."""
    found = available()
    missing = [name for name in names if name not in found]
    if missing:
        pytest.skip(f"NOT COMPARED with Kafka: no {', '.join(missing)}.jar (see ISTHMUS_KAFKA_JARS)")
    return [found[name] for name in names]
