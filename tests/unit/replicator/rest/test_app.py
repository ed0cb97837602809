"""Who is answered by REST, what links with identical offsets are told, and how often clusters are asked. Over
HTTP; no cluster is there.
"""

import asyncio
import contextlib
import json
from http.client import HTTPConnection

import pytest
from pydantic import ValidationError

from protocol.errors import ProtocolError
from replicator.link_report import LinkReport
from replicator.rest.app import make_app
from replicator.rest.models import Values
from replicator.rest.reports import KEPT_S, Reports
from replicator.rest.server import listen, serving
from replicator.settings import LinkSettings
from replicator.workers import asking
from replicator.workers.control import Scope


def link(**settings) -> LinkSettings:
    ends = {
        "source": {"alias": "east", "bootstrap": "127.0.0.1:1"},
        "target": {"alias": "west", "bootstrap": "127.0.0.1:1"},
    }
    return LinkSettings.model_validate(ends | settings)


MIRRORS = link(offsets="identical", naming="identity")


@contextlib.asynccontextmanager
async def rest(token=""):
    """A function that asks it: (path, Host, method, token) -> status, what it says."""
    listening, _ = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    app = make_app({MIRRORS.name: MIRRORS}, lambda _: {"state": "running", "problems": {}}, token)

    def request(path, host, method, given):
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            headers = {"Host": host.format(port=port)} | (
                {"Authorization": f"Bearer {given}"} if given else {}
            )
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    async def ask(path, host="127.0.0.1:{port}", method="GET", given=""):
        return await asyncio.to_thread(request, path, host, method, given)

    async with serving(app, listening):
        yield ask


@pytest.mark.parametrize("body", [{"rate_limit": 5}, {"set": {"rate_limit": 5}}])
def test_settings_that_stand_elsewhere_than_in_values_are_refused(body):
    """They were passed over, and the answer was that nothing changes."""
    with pytest.raises(ValidationError):
        Values.model_validate(body)


async def test_without_a_token_only_names_of_this_machine_are_answered():
    async with rest() as ask:
        for host in ("127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "LOCALHOST"):
            assert (await ask("/v1/links", host))[0] == 200
        for host in ("evil.example", "127.0.0.1.evil.example:{port}", "localhost@evil.example", "[::1", ""):
            for path in ("/v1/links", "/openapi.json", "/"):
                code, said = await ask(path, host)
                assert code == 403, host
                assert "--rest-token-file" in json.loads(said)["detail"]


async def test_with_a_token_each_path_needs_it_and_any_host_may_be_asked():
    async with rest("secret") as ask:
        for path in ("/v1/links", "/openapi.json", "/"):
            assert (await ask(path, "east.example"))[0] == 401
            assert (await ask(path, "east.example", given="secret"))[0] == 200
        assert "/v1/links" in json.loads((await ask("/openapi.json", given="secret"))[1])["paths"]


async def half_a_request(port, headers=""):
    """Its answer, or what follows, is read from the stream; the body does not come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"PUT /v1/links/east-to-west/pause HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{headers}"
    writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 1000000000\r\n\r\n".encode())
    await writer.drain()
    return reader, writer


async def test_who_has_no_token_is_turned_away_before_the_body():
    """It was read first, of whatever size."""
    listening, _ = listen("127.0.0.1", 0)
    app = make_app({MIRRORS.name: MIRRORS}, lambda _: {}, "secret")
    async with serving(app, listening), asyncio.timeout(30):
        reader, writer = await half_a_request(listening.getsockname()[1], "Authorization: Bearer guess\r\n")
        assert b" 401 " in await reader.readline()
        writer.close()


async def test_a_client_that_stops_halfway_does_not_keep_the_process():
    listening, _ = listen("127.0.0.1", 0)
    async with asyncio.timeout(30):
        async with serving(make_app({MIRRORS.name: MIRRORS}, lambda _: {}), listening):
            _, writer = await half_a_request(listening.getsockname()[1], "Expect: 100-continue\r\n")
            await _.readline()  # it is waited for
        writer.close()


async def test_a_partition_has_no_number_below_zero():
    async with rest() as ask:
        for method, verb in (("PUT", "/pause"), ("GET", "")):
            code, _ = await ask(f"/v1/links/east-to-west/topics/t/partitions/-1{verb}", method=method)
            assert code == 422


async def test_links_that_keep_offsets_say_that_they_do_not_follow():
    async with rest() as ask:
        base = "/v1/links/east-to-west"
        for verb in ("pause", "resume", "restart", "pause?dry_run=true"):
            code, said = await ask(f"{base}/{verb}", method="PUT")
            assert code == 409
            assert "isthmus replicate" in json.loads(said)["detail"]


async def test_settings_of_a_link_that_keeps_offsets_are_not_changed():
    with pytest.raises(asking.NotAsked, match="change its file"):
        await asking.set_values(MIRRORS, {"rate_limit": 1})
    with pytest.raises(asking.NotAsked):
        await asking.pause(MIRRORS, Scope("orders"), asking.wish())


class Cluster:
    """How often it was asked; the time goes on by hand."""

    def __init__(self):
        self.asked, self.now, self.error = 0, 100.0, None

    async def ask(self, settings):
        self.asked += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return LinkReport([], self.asked)

    async def many(self, reports, count=20):
        return await asyncio.gather(*(reports.of(MIRRORS) for _ in range(count)), return_exceptions=True)


async def test_many_who_ask_are_one_report_and_it_is_old_after_a_second_or_a_change():
    cluster = Cluster()
    reports = Reports(cluster.ask, lambda: cluster.now)
    assert {found.differences for found in await cluster.many(reports)} == {1}
    cluster.now += KEPT_S / 2
    assert (await reports.of(MIRRORS)).differences == 1
    reports.forget(MIRRORS.name)
    assert (await reports.of(MIRRORS)).differences == 2
    cluster.now += KEPT_S
    assert (await reports.of(MIRRORS)).differences == 3


async def test_a_cluster_that_does_not_answer_is_asked_once_for_all():
    cluster = Cluster()
    cluster.error = ProtocolError("nobody is there")
    reports = Reports(cluster.ask, lambda: cluster.now)
    assert await cluster.many(reports) == [cluster.error] * 20
    assert cluster.asked == 1
    cluster.error = None
    cluster.now += KEPT_S
    assert (await reports.of(MIRRORS)).differences == 2
