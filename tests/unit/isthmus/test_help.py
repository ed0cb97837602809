"""`--help` of every command: the first thing that people ask for, so each must show."""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest

from isthmus.cli import COMMANDS, LazyCommands, app


def leaves(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from leaves(inner, (*words, name))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, command in leaves(LazyCommands._load(name), (name,)):
        assert command.main(args=["--help"], prog_name=" ".join(words), standalone_mode=False) == 0
        assert f"Usage: {' '.join(words)}" in capsys.readouterr().out


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"isthmus {version('isthmus')}\n"
