"""`isthmus replicate FILE --check`: what it says of a link whose clusters cannot be asked."""

import socket

import typer
from typer.testing import CliRunner

from isthmus.commands.replicate import replicate


def test_only_what_is_not_the_default_is_shown_and_why_nothing_is_planned(tmp_path):
    app = typer.Typer()
    app.command()(replicate)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{unused.getsockname()[1]}"
        file = tmp_path / "links.yaml"
        file.write_text(
            f"version: 1\nname: x\ndata_directory: {tmp_path}\ndatacenters: {{a: }}\nclusters:\n"
            f"  east: {{datacenter: a, bootstrap_servers: '{nobody}'}}\n"
            f"  west: {{datacenter: a, bootstrap_servers: '{nobody}'}}\n"
            "links:\n  east->west: {topics: [a, b], flow: {fetch_max_wait_ms: 7}}\n"
        )
        done = CliRunner().invoke(app, [str(file), "--check"], catch_exceptions=False)
    assert done.exit_code == 1
    first, *settings, problem = done.stdout.splitlines()
    assert first == f"link east->west: {nobody} to {nobody}"
    assert settings == ["  topics: a, b", "  flow.fetch_max_wait_ms: 7"]
    assert problem.startswith(f"  cannot be planned: east cannot be reached (PLAINTEXT at {nobody})")
    assert "Connection refused" in problem
