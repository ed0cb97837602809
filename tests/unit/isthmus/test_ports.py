"""Ports and addresses that `isthmus replicate` cannot listen on: one line with what to do, exit code 1."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from isthmus.commands.replicate import replicate


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def _fails(tmp_path: Path, *options: str) -> str:
    app = typer.Typer()
    app.command()(replicate)
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters=A,B\nA.bootstrap.servers=127.0.0.1:1\nB.bootstrap.servers=127.0.0.1:1\nA->B.enabled=true\n"
    )
    done = CliRunner().invoke(app, [str(file), *options], catch_exceptions=False)
    assert done.exit_code == 1
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ("--metrics-port", "metrics port {} cannot be used"),
        ("--rest-port", "REST cannot listen on 127.0.0.1 port {}"),
    ],
)
def test_a_port_that_is_taken(tmp_path: Path, taken: int, option: str, what: str) -> None:
    assert _fails(tmp_path, option, str(taken)) == (
        f"isthmus: {what.format(taken)}: Address already in use; take another port by {option}"
        " (0: a free one), or stop who listens there"
    )
