"""Commands about links as people run them: with a topology that names both clusters by address."""

import asyncio
from pathlib import Path

from typer.testing import CliRunner

from isthmus.commands.links import app
from replicator.settings import LinkSettings


def declared(link: LinkSettings, folder: Path, settings: str) -> Path:
    """A topology with the link; `settings` of it as in YAML, beside its topics."""
    clusters = "".join(
        f"  {end.alias}: {{datacenter: here, bootstrap_servers: '{end.bootstrap}'}}\n"
        for end in (link.source, link.target)
    )
    text = (
        f"version: 1\nname: status\ndata_directory: {folder}\ndatacenters: {{here: }}\nclusters:\n{clusters}"
        f"links:\n  {link.name}: {{topics: ['{link.topics[0]}'], {settings}}}\n"
    )
    file = folder / "links.yaml"
    file.write_text(text)
    return file


async def link_status(link: LinkSettings, file: Path, *options: str) -> tuple[int, str]:
    """(exit code, output) of `links status`."""
    done = await asyncio.to_thread(CliRunner().invoke, app, ["status", link.name, "-f", str(file), *options])
    return done.exit_code, done.stdout
