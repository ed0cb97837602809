"""An installation without Spark: every command shows its help, and those that need Spark say what to do."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.without_spark import ROOT, without_spark

ALL_HELP = """
from isthmus.cli import COMMANDS, LazyCommands
from tests.unit.isthmus.test_help import leaves
for name in COMMANDS:
    for words, command in leaves(LazyCommands._load(name), (name,)):
        assert command.main(args=["--help"], prog_name=" ".join(words), standalone_mode=False) == 0
        print("shown:", *words)
"""
INSTALL = r"\n  \S*python\S* -m pip install 'isthmus\[{}\]'\n"


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=without_spark(folder),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_help_of_every_command(tmp_path: Path) -> None:
    done = run(tmp_path, "-c", ALL_HELP)
    assert (done.returncode, done.stderr) == (0, "")
    assert "shown: audit\n" in done.stdout
    assert "shown: links translate\n" in done.stdout


@pytest.mark.parametrize(
    ("words", "needs", "extra"),
    [
        (["audit", "--topic", "flights", "--link", "east->west"], "pyspark, pyarrow, pandas", "spark"),
        (["demo", "--directory", "DIRECTORY"], "pyspark, pyarrow, pandas", "demo"),
        (["zookeeper", "--data", "DIRECTORY", "--port", "0"], "pyspark", "spark"),
        (
            [
                "broker",
                "--embedded-zookeeper",
                "--data",
                "DIRECTORY",
                "--listener",
                "PLAINTEXT://127.0.0.1:0",
            ],
            "pyspark",
            "spark",
        ),
    ],
)
def test_a_command_that_needs_it_says_how_to_install_it(
    words: list[str], needs: str, extra: str, tmp_path: Path
) -> None:
    words = [str(tmp_path / "state") if word == "DIRECTORY" else word for word in words]
    done = run(tmp_path, "-m", "isthmus", *words)
    assert done.returncode == 1
    assert re.fullmatch(
        rf"isthmus: .* needs {needs}, not installed here\. Install it with{INSTALL.format(extra)}",
        done.stderr,
    )


def test_a_command_that_does_not_need_it_does_its_work(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "isthmus", "drill", "check", "dr_runbooks/failover.yaml")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_extras_that_are_named_bring_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert sorted(extras["spark"]) == ["pandas", "pyarrow", "pyspark"]
    assert not set(extras["spark"]) & set(project["dependencies"])
    assert "isthmus[spark]" in extras["demo"]
    assert "isthmus[spark]" in extras["dev"]
