"""What people ask of a running link: pause, resume, restart, settings; by command and by REST."""

import asyncio
import json
import os
import signal
import sys
import urllib.error
import urllib.request

import pytest

from replicator.link_report import link_report
from replicator.rest.app import make_app
from replicator.rest.hosts import is_local
from replicator.rest.server import listen, serving
from replicator.workers import asking
from replicator.workers.control import Scope
from tests.cluster.links import (
    content,
    copied_to,
    create,
    eventually,
    fresh,
    produce,
    running,
    some,
)

pytestmark = pytest.mark.cluster


async def test_what_is_paused_stands_still_also_after_a_restart_and_goes_on_where_it_stopped(pair, clients):
    """A partition, its topic, the link; the rest goes on meanwhile."""
    east, west = clients
    topic = fresh("paused")
    link = pair.link(topic, heartbeats_replication=False)
    await create(east, topic, 2)
    for partition in (0, 1):
        await produce(east, topic, some(5), partition)
    asked = asking.wish("maintenance", "me")
    async with running(link) as first:
        for partition in (0, 1):
            await copied_to(west, link, topic, 5, partition)
        dry = await asking.pause(link, Scope(topic, 1), asked, dry_run=True)
        assert (dry.done, [str(tp) for tp in dry.partitions]) == (False, [f"{topic}-1"])
        await asking.pause(link, Scope(topic, 1), asked)

        async def stands(process, partition, state):
            return process.partition(topic, partition).get("state") == state

        await eventually(lambda: stands(first, 1, "paused"), "partition 1 is paused")
        assert "by me: maintenance" in first.partition(topic, 1)["reason"]
        for partition in (0, 1):
            await produce(east, topic, some(5, "later"), partition)
        await copied_to(west, link, topic, 10, 0)
        assert await first.stop() == 0
    async with running(link) as second:
        await eventually(lambda: stands(second, 1, "paused"), "partition 1 is paused after a restart")
        report = {row["partition"]: row for row in (await link_report(link)).rows}
        assert (report[0]["lag"], report[1]["lag"]) == (0, 5)
        assert report[1]["paused"] == "paused by me: maintenance"
        await asking.pause(link, Scope(), asked)
        await eventually(lambda: stands(second, 0, "paused"), "the link is paused")
        with pytest.raises(asking.NotAsked, match="stays paused with the link"):
            await asking.resume(link, Scope(topic, 1))
        await asking.resume(link, Scope())
        await copied_to(west, link, topic, 10, 1)
        with pytest.raises(asking.NotAsked, match="nothing of topic"):
            await asking.resume(link, Scope(topic))
        starts = second.partition(topic, 0)["starts"]
        await asking.restart(link, Scope(topic, 0), asked)

        async def begun_anew():
            found = second.partition(topic, 0)
            return found["starts"] == starts + 1 and found["state"] == "running"

        await eventually(begun_anew, "partition 0 has begun anew")
        assert await second.stop() == 0
    for partition in (0, 1):
        at_target = await content(west, f"{link.source.alias}.{topic}", partition)
        assert at_target == await content(east, topic, partition)


async def test_filters_change_while_a_link_runs_and_come_back_with_unset(pair, clients):
    east, west = clients
    old, new = fresh("before"), fresh("after")
    link = pair.link(old, heartbeats_replication=False)
    for topic in (old, new):
        await create(east, topic)
        await produce(east, topic, some(3))
    async with running(link) as process:
        await copied_to(west, link, old, 3)
        with pytest.raises(asking.NotAsked, match="naming: cannot be changed while the link runs"):
            await asking.set_values(link, {"naming": "identity"})
        with pytest.raises(asking.NotAsked, match="not a regular expression"):
            await asking.set_values(link, {"topics": "("})
        await asking.set_values(link, {"topics": new, "rate_limit": "1000000"})
        await copied_to(west, link, new, 3)

        async def only(topic):
            return set(process.status.to_json()["partitions"]) == {f"{topic}-0"}

        await eventually(lambda: only(new), "only the new topic is copied")
        assert (await link_report(link)).settings == {"topics": new, "rate_limit": "1000000"}
        await asking.set_values(link, {}, unset=("topics", "rate_limit"))
        await eventually(lambda: only(old), "the file's topics are copied again")
        await produce(east, old, some(3, "more"))
        await copied_to(west, link, old, 6)
    assert await content(west, f"{link.source.alias}.{old}") == await content(east, old)


def _request(url, method="GET", body=None, token=""):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def test_rest_shows_and_asks_the_same_and_describes_itself(pair, clients):
    east, west = clients
    topic = fresh("rest")
    link = pair.link(topic, heartbeats_replication=False)
    await create(east, topic)
    await produce(east, topic, some(4))
    async with running(link) as process:
        await copied_to(west, link, topic, 4)
        listening, url = listen("127.0.0.1", 0)
        app = make_app({link.name: link}, lambda _: process.status.to_json(), token="secret")

        async def ask(path, method="GET", body=None, token="secret"):
            code, text = await asyncio.to_thread(_request, url + path, method, body, token)
            return code, json.loads(text) if text.startswith(("{", "[")) else text

        async with serving(app, listening):
            assert (await ask("/v1/links", token="wrong"))[0] == 401
            assert (await ask("/v1/links"))[1][0]["link"] == link.name
            base = f"/v1/links/{link.name.replace('->', '-to-')}"

            async def told():
                code, said = await ask(base)
                return code == 200 and [row["at_worker"] for row in said["partitions"]] == ["running"]

            await eventually(told, "REST tells which worker has the partition")
            one = f"{base}/topics/{topic}/partitions/0"
            code, done = await ask(f"{one}/pause", "PUT", {"why": "a look"})
            assert (code, done["done"], done["partitions"]) == (200, True, [f"{topic}-0"])

            async def paused():
                return (await ask(one))[1]["at_worker"] == "paused"

            await eventually(paused, "the worker says that the partition is paused")
            assert (await ask(one))[1]["paused"] == "paused by REST: a look"
            assert (await ask(f"{one}/resume?dry_run=true", "PUT"))[1]["done"] is False
            assert (await ask(f"{one}/resume", "PUT"))[0] == 200
            assert (await ask(f"{one}/resume", "PUT"))[0] == 409
            assert (await ask(f"{base}/settings", "PUT", {"values": {"drain_s": 1}}))[0] == 409
            assert (await ask(f"{base}/topics/none"))[0] == 404
            assert (await ask("/v1/links/other"))[0] == 404
            api = (await ask("/openapi.json"))[1]
            assert f"{'/v1/links/{link}'}/topics/{{topic}}/partitions/{{partition}}/pause" in api["paths"]
            assert api["openapi"].startswith("3.")
            page = (await ask("/"))[1]
            assert "/v1/links/{link}/settings" in page
            assert "http://" not in page
            assert "https://" not in page


@pytest.mark.parametrize(("host", "local"), [("127.0.0.1", True), ("::1", True), ("localhost", True)])
def test_what_only_this_machine_reaches(host, local):
    assert is_local(host) is local
    assert not is_local("0.0.0.0")
    assert not is_local("west.example")


async def test_the_commands_of_a_link_that_a_properties_file_declares(pair, clients, tmp_path):
    """Real processes: replicate with REST, then pause, status, resume and set from another one."""
    east, _ = clients
    topic = fresh("commands")
    await create(east, topic)
    await produce(east, topic, some(4))
    file = tmp_path / "mm2.properties"
    file.write_text(
        f"clusters = a, b\na.bootstrap.servers = {pair.east}\nb.bootstrap.servers = {pair.west}\n"
        f"a->b.enabled = true\na->b.topics = {topic}\nreplication.factor = 1\n"
        "offset.storage.replication.factor = 1\noffset-syncs.topic.replication.factor = 1\n"
        "checkpoints.topic.replication.factor = 1\nheartbeats.topic.replication.factor = 1\n"
    )
    command = [sys.executable, "-m", "isthmus"]

    async def run(*arguments):
        process = await asyncio.create_subprocess_exec(
            *command, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    code, _, err = await run("replicate", str(file), "--rest-port", "0", "--rest-host", "0.0.0.0")
    assert (code, "--rest-token-file" in err) == (2, True)
    link = await asyncio.create_subprocess_exec(
        *command, "replicate", str(file), "--rest-port", "0", stdout=asyncio.subprocess.PIPE, env=os.environ
    )
    try:
        async with asyncio.timeout(60):
            ready = (await link.stdout.readline()).decode()
        assert ready.startswith("isthmus link a->b ready")
        url = ready.partition("REST ")[2].strip()
        assert "isthmus links" in (await asyncio.to_thread(_request, url))[1]
        code, out, err = await run("links", "pause", "a->b", "--why", "lunch", "-f", str(file), "--json")
        assert (code, json.loads(out)["done"]) == (0, True), err

        async def shown():
            found = await run("links", "status", "a->b", "-f", str(file), "--json")
            rows = [row for row in json.loads(found[1])["partitions"] if row["topic"] == topic]
            return [row["at_worker"] for row in rows] == ["paused"] and rows[0]["paused"].endswith(": lunch")

        await eventually(shown, "the status tells of the pause", 60)
        assert (await run("links", "set", "a->b", "topics=(", "-f", str(file)))[0] == 2
        code, out, _ = await run("links", "resume", "a->b", "-f", str(file))
        assert (code, out) == (0, "the link of a->b goes on\n")
        code, out, err = await run("links", "translate", "a->b", "--group", "nobody", "-f", str(file))
        assert (code, out, err) == (2, "", "isthmus: group nobody has committed nothing at a\n")
        code, out, _ = await run(
            "links", "translate", "a->b", "-t", "none", "-o", "1", "-f", str(file), "--json"
        )
        assert (code, json.loads(out)["positions"][0]["offset"]) == (3, None)
        code, _, err = await run("links", "set", "a->b", "rate_limt=5", "-f", str(file))
        assert (code, err) == (2, "isthmus: rate_limt: is no setting of a link; did you mean 'rate_limit'?\n")
    finally:
        link.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await link.wait() == 0
