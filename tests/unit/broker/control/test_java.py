"""Finding Java: what is missing or too old is said together with what to install."""

import pytest

from broker.control.java import JavaError, find_java


def _fake_java(directory, version: str) -> None:
    home = directory / "jdk"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')


def test_no_java(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaError, match="apt-get install openjdk-17-jre-headless"):
        find_java()


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21"])
def test_old_java(monkeypatch, tmp_path, version) -> None:
    _fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(JavaError, match="too old"):
        find_java()


def test_java_home_comes_first(monkeypatch, tmp_path) -> None:
    _fake_java(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert find_java() == str(tmp_path / "jdk" / "bin" / "java")


def test_java_home_without_java(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match="has no bin/java"):
        find_java()
