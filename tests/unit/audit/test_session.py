"""A session leaves nothing behind, and says why it cannot be."""

import os
from pathlib import Path

import psutil
import pytest

from audit.errors import AuditError
from audit.session import spark_session
from audit.settings import SparkSettings


@pytest.mark.spark
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # pyspark leaks a dead JVM's pipe
def test_when_the_engine_does_not_start_its_own_words_are_shown() -> None:
    before = dict(os.environ)
    others = set(psutil.Process().children())  # the ZooKeeper of other tests is a Java process too
    with (
        pytest.raises(AuditError, match="nonsense"),
        spark_session(SparkSettings(driver_memory="nonsense")),
    ):
        pass
    assert dict(os.environ) == before
    assert [child for child in psutil.Process().children() if child not in others] == []


def test_without_java_it_says_what_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(AuditError, match="needs Java 17"), spark_session():
        pass
