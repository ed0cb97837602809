"""kafka-python's own integration tests, from its source distribution, against one of our brokers.

The distribution lacks `test/service.py`, of which only the class for a broker that runs already is needed.
"""

import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tests.interop.pytest_suite import PIP, PytestSuite, make_environment
from tests.interop.suite import Options, Result, build_step, cache, main

VERSION = "3.0.12"
_BROKER = {
    "num.partitions": "4",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}
KAFKA_VERSION = "4.1.0"  # what the tests are told to expect of the broker
_REQUIREMENTS = (
    *("pytest==9.0.2", "pytest-timeout==2.4.0", "pytest-mock==3.15.1"),
    *("lz4==4.4.5", "python-snappy==0.7.3", "zstandard==0.25.0", "crc32c==2.9.post0"),
)
_SERVICE = '''
class ExternalService:
    """A broker that runs already."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    close = stop = open


class SpawnedService:
    def __init__(self, *args, **kwargs):
        raise NotImplementedError("this suite starts no processes")
'''


def prepared() -> PytestSuite:
    """The suite in its environment, made on first use."""
    folder = cache("kafka_python")
    source = folder / f"kafka_python-{VERSION}"
    interpreter, ready = folder / "venv" / "bin" / "python", folder / f".ready-{VERSION}"
    if not ready.exists():
        fetch = [*PIP, "download", "--no-binary", ":all:", "--no-deps", "-d", ".", f"kafka-python=={VERSION}"]
        build_step(fetch, folder, folder / "build.log", 600)
        interpreter = make_environment("kafka_python", _REQUIREMENTS)
        with tarfile.open(folder / f"{source.name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        (source / "test" / "__init__.py").touch()
        (source / "test" / "service.py").write_text(_SERVICE)
        ready.touch()
    environment = {"KAFKA_VERSION": KAFKA_VERSION, "KAFKA_ROOT": str(source), "KAFKA_URI": "kafka://none:0"}
    limits = ("--timeout=120", "--timeout-method=signal")
    return PytestSuite(interpreter, source, ("test/integration",), limits, environment)


def tests(options: Options) -> Iterator[Result]:
    suite = prepared()
    chosen = options.chosen(suite.ids())
    with options.broker(_BROKER) as bootstrap:
        yield from suite.results(options, chosen, {"KAFKA_URI": f"kafka://{bootstrap}"})


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent, tests, VERSION))
