"""REST over TLS, with clients of Python and curl: nothing in clear, and whom it lets in."""

import asyncio
import contextlib
import json
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request

import pytest
from typer import Exit

from isthmus.rest_options import rest_access
from protocol.client.tls import TlsSettingsError
from replicator.rest.app import make_app
from replicator.rest.server import listen, serving, tls_context
from tests.support.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@contextlib.asynccontextmanager
async def rest(context, token="", *, any_host=False):
    """Its URL."""
    listening, url = listen("127.0.0.1", 0, "https")
    app = make_app({}, lambda _: {}, token, any_host=any_host)
    async with serving(app, listening, context):
        yield f"{url}/v1/links"


async def ask(url, authority, *, store=None, token=""):
    """Status, and what it says. Raises URLError, OSError."""
    context = ssl.create_default_context(cafile=str(authority.certificate_file))
    if store is not None:
        context.load_cert_chain(store)
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    def request():
        asked = urllib.request.Request(url, headers=headers)
        try:
            with urllib.request.urlopen(asked, context=context, timeout=30) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    return await asyncio.to_thread(request)


async def test_https_is_served_and_nothing_in_clear(authority):
    async with rest(tls_context(authority.store("rest")), "secret") as url:
        assert await ask(url, authority, token="secret") == (200, [])
        assert (await ask(url, authority))[0] == 401
        assert (await ask(url, authority, token="guess"))[0] == 401
        with pytest.raises(OSError):  # reset, or closed without a word
            await ask(url.replace("https", "http"), authority, token="secret")
        stranger = Authority(authority.directory / "stranger", "somebody else")
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            await ask(url, stranger, token="secret")
        assert await ask(url, authority, token="secret") == (200, [])


async def test_only_clients_that_the_authority_has_signed_are_let_in(authority):
    stranger = Authority(authority.directory / "other", "somebody else")
    context = tls_context(authority.store("rest"), authority.certificate_file)
    async with rest(context, any_host=True) as url:
        assert await ask(url, authority, store=authority.store("client")) == (200, [])
        for store in (None, stranger.store("client")):
            with pytest.raises(OSError):  # an alert, or the connection ends
                await ask(url, authority, store=store)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on PATH")
async def test_curl(authority):
    async with rest(tls_context(authority.store("rest")), "secret") as url:

        def curl(address, *more):
            command = ["curl", "-sS", "-m", "30", "--noproxy", "*", *more, address]
            return subprocess.run(command, capture_output=True, text=True, check=False)

        trusted = ("--cacert", str(authority.certificate_file))
        bearer = ("-H", "Authorization: Bearer secret")
        assert (await asyncio.to_thread(curl, url, *trusted, *bearer)).stdout == "[]"
        assert "Bearer TOKEN" in (await asyncio.to_thread(curl, url, *trusted)).stdout
        clear = await asyncio.to_thread(curl, url.replace("https", "http"), *bearer)
        assert (clear.returncode == 0, clear.stdout) == (False, "")


def test_what_is_wrong_with_a_keystore_is_said(authority):
    with pytest.raises(TlsSettingsError, match="needs a private key"):
        tls_context(authority.certificate_file)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"port": 0, "host": "0.0.0.0"}, "--rest-token-file"),
        ({"port": 0, "client_ca": "authority"}, "--rest-client-ca needs --rest-keystore"),
        ({"port": 0, "keystore": "authority"}, "REST: --rest-keystore: needs a private key"),
        ({"port": 0, "keystore": "rest", "client_ca": "nowhere.pem"}, "REST: --rest-client-ca: "),
        ({"host": "0.0.0.0"}, "--rest-host needs --rest-port"),
    ],
)
def test_options_that_do_not_do_end_the_command(authority, capsys, given, why):
    files = {"authority": authority.certificate_file, "rest": authority.store("rest")}
    options = {
        name: files.get(value, value if name in ("port", "host") else authority.directory / str(value))
        for name, value in given.items()
    }
    with pytest.raises(Exit) as ended:
        rest_access(options, {})
    assert ended.value.exit_code == 2
    assert why in capsys.readouterr().err


def test_an_option_counts_before_the_file(authority, tmp_path):
    token = tmp_path / "token"
    token.write_text("secret\n")
    declared = {"port": 8083, "host": "0.0.0.0", "token_file": token, "keystore": authority.store("rest")}
    found = rest_access({"port": 0, "host": None}, declared)
    assert (found.port, found.host, found.token, found.scheme) == (0, "0.0.0.0", "secret", "https")
    assert rest_access({"port": None}, {}).port is None
    assert rest_access({"port": 0}, {}).scheme == "http"
