"""aiokafka's own tests that need a broker, from its repository, against one of our brokers.

The source distribution has no tests, so they come from a git clone: the one that AIOKAFKA_SOURCE names (bare
will do), or one that is made here, where GitHub can be reached. Only `tests/` is taken; the client itself is
the released one, in an environment of its own.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tests.interop.pytest_suite import PytestSuite, make_environment
from tests.interop.suite import Options, Result, ToolChainMissing, build_step, cache, main, need

VERSION = "0.14.0"
EXPECTS = "3.9.0"  # what the tests are told to expect of the broker
_REQUIREMENTS = (
    *(f"aiokafka=={VERSION}", "cramjam==2.11.0", "async-timeout==5.0.1"),
    *("pytest==9.0.2", "pytest-asyncio==1.3.0", "pytest-mock==3.15.1", "pytest-timeout==2.4.0"),
)
# Those with a broker, and without TLS, SASL or Kerberos.
_FILES = (
    *("admin", "client", "cluster", "conn", "consumer", "coordinator", "fetcher", "pep492", "producer"),
    *("sender", "transactional_consumer", "transactional_producer"),
)
_ORIGIN = "https://github.com/aio-libs/aiokafka"
_CLONE_S = 60.0
_SETTINGS = "[pytest]\nasyncio_mode = auto\nmarkers =\n    ssl: needs certificates\n"


def _git_repository(folder: Path) -> Path:
    need("git")
    given = os.environ.get("AIOKAFKA_SOURCE")
    if given:
        return Path(given)
    clone = folder / "repository.git"
    shutil.rmtree(clone, ignore_errors=True)
    command = ["git", "clone", "-q", "--bare", "--depth", "1", "--branch", f"v{VERSION}", _ORIGIN, clone.name]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        build_step(command, folder, folder / "build.log", _CLONE_S, environment)
    except ToolChainMissing as failed:
        raise ToolChainMissing(
            f"aiokafka's tests are in no package: AIOKAFKA_SOURCE has to name a clone of {_ORIGIN} ({failed})"
        ) from failed
    return clone


def prepared() -> PytestSuite:
    """The suite in its environment, made on first use."""
    folder = cache("aiokafka")
    source = folder / f"source-{VERSION}"
    interpreter, ready = folder / "venv" / "bin" / "python", folder / f".ready-{VERSION}"
    if not ready.exists():
        repository = _git_repository(folder)
        archive = folder / "tests.tar"
        with archive.open("wb") as output:
            command = ["git", "archive", "--format=tar", f"v{VERSION}", "tests"]
            if subprocess.run(command, cwd=repository, stdout=output, check=False).returncode:
                raise ToolChainMissing(f"{repository} has no tag v{VERSION}")
        shutil.rmtree(source, ignore_errors=True)
        with tarfile.open(archive) as opened:
            opened.extractall(source, filter="data")
        interpreter = make_environment("aiokafka", _REQUIREMENTS)
        ready.touch()
    shutil.copyfile(Path(__file__).with_name("fixtures.py"), source / "tests" / "conftest.py")
    (source / "pytest.ini").write_text(_SETTINGS)
    environment = {"AIOKAFKA_EXPECTS": EXPECTS, "AIOKAFKA_BROKER": "127.0.0.1:1"}
    files = tuple(f"tests/test_{name}.py" for name in _FILES)
    return PytestSuite(interpreter, source, files, ("--timeout=180",), environment)


def tests(options: Options) -> Iterator[Result]:
    suite = prepared()
    chosen = options.chosen(suite.ids())
    with options.broker({"num.partitions": "2"}) as bootstrap:
        yield from suite.results(options, chosen, {"AIOKAFKA_BROKER": bootstrap})


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent, tests, VERSION))
