"""Mirrors as people run them: a topology's links by `isthmus replicate`, and `isthmus mirrors`."""

import json
import signal
from pathlib import Path

import pytest

from tests.cluster.links import create, eventually, fresh, produce, records, some
from tests.cluster.mirrors import ends, same_logs
from tests.support.commands import begun, ended
from tests.support.slow import slow

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(420),
    slow("a dozen commands, a second each and more; test_mirrors_switching takes the same steps"),
]


TOPOLOGY = """
version: 1
name: mirrors
data_directory: {folder}
datacenters: {{east: , west: }}
clusters:
  east: {{datacenter: east, bootstrap_servers: "{east}"}}
  west: {{datacenter: west, bootstrap_servers: "{west}"}}
links:
  east->west: {{offsets: identical, naming: identity, topics: ["{topic}"], groups: ["{topic}"]}}
  west->east: {{offsets: identical, naming: identity, topics: ["{topic}"], groups: ["{topic}"]}}
"""


def declared(pair, folder: Path, topic: str) -> Path:
    file = folder / "mirrors.yaml"
    file.write_text(TOPOLOGY.format(folder=folder / "data", east=pair.east, west=pair.west, topic=topic))
    return file


async def run(*arguments, code=0):
    """What it says; ended with `code`."""
    found, out, err = await ended(await begun(*arguments))
    assert found == code, (out, err)
    return out, err


async def killed(process):
    if process.returncode is None:
        process.kill()
    await process.communicate()


async def test_a_killed_link_goes_on_and_a_promotion_loses_nothing(pair, clients, tmp_path):
    east, west = clients
    topic = fresh("killed")
    await create(east, topic)
    await produce(east, topic, some(10))
    file = declared(pair, tmp_path, topic)
    link = await begun("replicate", file, "--link", "east->west")
    try:
        await same_logs(east, west, topic)
    finally:
        await killed(link)
    for _ in range(20):
        await produce(east, topic, some(5))
    out, _ = await run("mirrors", "promote", "east->west", "-f", file, "--dry-run", "--json")
    assert json.loads(out)["at_risk"][topic]["records"] == 100
    out, err = await run("mirrors", "promote", "east->west", "-f", file, "--yes", "--json")
    assert json.loads(out)["records_lost"] == 0, err
    assert [r.value for r in await records(west, topic)] == [r.value for r in await records(east, topic)]


async def test_the_whole_way_there_and_back_by_commands(pair, clients, tmp_path):
    east, west = clients
    topic = fresh("way")
    await create(east, topic)
    await produce(east, topic, some(10))
    file = declared(pair, tmp_path, topic)
    link = await begun("replicate", file, "--link", "east->west")
    try:
        await same_logs(east, west, topic)
        _, err = await run("mirrors", "reverse", "east->west", "-f", file, "--yes", code=1)
        assert "promote it, or fail over, first" in err
    finally:
        link.send_signal(signal.SIGTERM)
        out, err = await link.communicate()
    assert link.returncode == 0, err
    assert b"ready" in out
    failover = ("mirrors", "failover", "east->west", "-f", file, "--dry-run", "--json")
    out, _ = await run(*failover)
    assert json.loads(out)["at_risk"][topic]["records"] == 0
    await produce(east, topic, some(3, "lost"))
    out, _ = await run(*failover, code=3)  # as it would end
    assert json.loads(out)["at_risk"][topic]["records"] == 3
    out, _ = await run("mirrors", "failover", "east->west", "-f", file, "--yes", code=3)
    assert "lost: 3 records" in out
    _, err = await run("mirrors", "failover", "east->west", "-f", file, "--yes", code=1)
    assert "no mirror" in err
    await produce(west, topic, some(4, "west"))
    reverse = ("mirrors", "reverse", "east->west", "-f", file, "--dry-run", "--json")
    out, _ = await run(*reverse, code=3)
    assert json.loads(out)["records_cut"] == 3
    saved = tmp_path / "saved"
    restore = ("mirrors", "truncate-and-restore", "east->west", "-f", file, "--save-to", saved)
    out, _ = await run(*restore, "--dry-run", "--json", code=3)
    assert json.loads(out)["records_cut"] == 3
    assert await ends(east, topic) == [13]
    out, err = await run(*restore, "--yes", "--json", code=3)
    assert json.loads(out)["restored"]["records_lost"] == 0, err
    assert (saved / f"{topic}-0" / f"{10:020d}.log").stat().st_size > 0
    await produce(east, topic, some(2, "home"))
    link = await begun("replicate", file, "--link", "east->west")
    try:
        await same_logs(east, west, topic)

        async def shown():
            out, _ = await run("mirrors", "status", "east->west", "-f", file, "--json")
            (row,) = json.loads(out)["partitions"]
            return row["records"] == 0 and row["mirror_end"] == row["source_end"]

        await eventually(shown, "the status says that nothing is at risk", 60)
    finally:
        await killed(link)
