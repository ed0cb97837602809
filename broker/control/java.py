"""Finds the Java that ZooKeeper needs, and ZooKeeper's own jars.

ZooKeeper comes with PySpark (the extra `spark`), so nothing is downloaded. Java itself is the
operator's: when it is missing or too old the error says what to install.
Must not start anything.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from protocol.extras import missing

MINIMUM_JAVA = 17

# What a ZooKeeper server loads: itself, its record format, metrics, snapshots' compression, and logging.
_JARS = (
    "zookeeper-[0-9]*.jar",
    "zookeeper-jute-*.jar",
    "audience-annotations-*.jar",
    "commons-io-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "netty-buffer-*.jar",
    "netty-codec-[0-9]*.jar",
    "netty-codec-base-*.jar",
    "netty-common-*.jar",
    "netty-handler-[0-9]*.jar",
    "netty-resolver-*.jar",
    "netty-transport-[0-9]*.jar",
    "netty-transport-classes-epoll-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
)

_INSTALL = (
    f"install a Java {MINIMUM_JAVA}+ runtime (Debian/Ubuntu: apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17) or point JAVA_HOME at one"
)


class JavaError(Exception):
    """Java or ZooKeeper's jars cannot be had; the message says what to install."""


def find_java() -> str:
    """Path of a `java` that is new enough: JAVA_HOME first, then PATH."""
    home = os.environ.get("JAVA_HOME", "")
    candidate = Path(home, "bin", "java") if home else None
    if candidate is not None and not os.access(candidate, os.X_OK):
        raise JavaError(f"JAVA_HOME={home} has no bin/java: {_INSTALL}")
    java = str(candidate) if candidate is not None else shutil.which("java")
    if java is None:
        raise JavaError(f"no java on PATH, and ZooKeeper needs it: {_INSTALL}")
    version = _major_version(java)
    if version < MINIMUM_JAVA:
        raise JavaError(f"{java} is Java {version}, too old: {_INSTALL}")
    return java


def zookeeper_classpath() -> str:
    """Class path with the ZooKeeper that the installed PySpark bundles."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JavaError(missing("ZooKeeper, whose jars come with PySpark,", "spark", "pyspark"))
    jars = Path(spec.origin).parent / "jars"
    found = [path for pattern in _JARS for path in sorted(jars.glob(pattern))]
    if not any(path.name.startswith("zookeeper-jute") for path in found):
        raise JavaError(
            f"{jars} holds no ZooKeeper jars: reinstall pyspark (pip install --force-reinstall pyspark)"
        )
    return os.pathsep.join(str(path) for path in found)


def _major_version(java: str) -> int:
    """Java's feature version; from its `release` file where there is one, which saves starting a JVM."""
    release = Path(java).resolve().parent.parent / "release"
    try:
        text = release.read_text(encoding="utf-8", errors="replace")
        match = re.search(r'JAVA_VERSION="(\d+)(?:\.(\d+))?', text)
    except OSError:
        match = None
    if match is None:
        try:
            shown = subprocess.run(
                [java, "-version"], capture_output=True, text=True, timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise JavaError(f"{java} does not run ({error}): {_INSTALL}") from error
        match = re.search(r'version "(\d+)(?:\.(\d+))?', shown.stderr + shown.stdout)
    if match is None:
        raise JavaError(f"{java} does not say its version: {_INSTALL}")
    major = int(match.group(1))
    return int(match.group(2) or 0) if major == 1 else major
