"""One Spark session for audits: small, quiet, and gone when it is closed.

Owns starting and stopping the engine. Spark's own output goes to a file, whose end is part of the error when
the engine does not start. The JVM ends when this process does, however it ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from audit.errors import AuditError
from audit.settings import SparkSettings
from protocol.extras import missing

_JAVA_MIN = "17"


def need_spark() -> None:
    """Raises AuditError where Spark, or what it takes its rows with, is not installed. `audit.run` cannot be
    imported then; without pandas the second pass would fail."""
    if absent := missing("work on Spark", "spark", "pyspark", "pyarrow", "pandas"):
        raise AuditError(absent)


@contextmanager
def spark_session(settings: SparkSettings | None = None) -> Iterator[Any]:
    """A session for any number of audits, one after the other. Raises AuditError."""
    settings = settings or SparkSettings()
    need_spark()
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise AuditError(f"the audit needs Java {_JAVA_MIN} or later: none on PATH, and JAVA_HOME is not set")
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="isthmus-audit-")))
        log = scratch / "spark.log"
        stack.enter_context(_environment(settings, scratch))
        with log.open("ab") as output:
            try:
                session, gateway = _start(settings, scratch, output)
            except Exception as error:  # whatever kept the engine from starting: say what it wrote
                tail = log.read_text(errors="replace")[-2000:].strip()
                raise AuditError(f"Spark did not start: {error}\n{tail}") from error
        try:
            yield session
        finally:
            _stop(session, gateway)


@contextmanager
def without_pandas_warning() -> Iterator[None]:
    """Around calls where pyspark warns of pandas 3; nothing here hands pandas anything."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


def _start(settings: SparkSettings, scratch: Path, output: Any) -> tuple[Any, Any]:
    with without_pandas_warning():
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        conf = SparkConf(loadDefaults=False).setMaster(settings.master).setAppName("isthmus audit")
        for key, value in _configuration(settings, scratch).items():
            conf.set(key, value)
        gateway = launch_gateway(  # type: ignore[no-untyped-call]
            conf, {"stdout": output, "stderr": subprocess.STDOUT}
        )
        try:
            context = SparkContext(conf=conf, gateway=gateway)
        except BaseException:
            _end(gateway)
            raise
        context.setLogLevel("ERROR")
        return SparkSession(context), gateway


def _configuration(settings: SparkSettings, scratch: Path) -> dict[str, str]:
    return {
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": f"{settings.java_options} -Djava.io.tmpdir={scratch}",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.sql.session.timeZone": "UTC",
        **settings.extra,
    }


def _stop(session: Any, gateway: Any) -> None:
    try:
        session.stop()
    finally:
        _end(gateway)


def _end(gateway: Any) -> None:
    """Ends the JVM and forgets it, so that the next session starts its own."""
    from pyspark import SparkContext

    SparkContext._gateway = None
    SparkContext._jvm = None
    gateway.shutdown()
    process = gateway.proc
    if process is None:
        return
    process.stdin.close()  # the JVM ends when this pipe does
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _environment(settings: SparkSettings, scratch: Path) -> Iterator[None]:
    """What Spark reads from the environment only: the interpreter of its workers, and where it lives."""
    wanted = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    if settings.master.startswith("local") and "SPARK_HOME" not in os.environ:
        wanted["SPARK_HOME"] = str(_home_without_zip(scratch))
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _home_without_zip(scratch: Path) -> Path:
    """A Spark home with the installed pyspark's programs and jars, but not its zip of pyspark.

    Spark puts that zip before everything else that its Python processes import, and Python keeps no compiled
    modules for a zip: each of the half dozen processes that a data source needs would compile pyspark anew.
    """
    import pyspark

    installed = Path(pyspark.__file__).parent
    home = scratch / "spark-home"
    home.mkdir()
    for name in ("bin", "jars"):
        (home / name).symlink_to(installed / name)
    return home
