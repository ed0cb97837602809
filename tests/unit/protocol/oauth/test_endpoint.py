"""Asking a token endpoint: what is posted, and what is said of each answer that holds no token."""

import base64
import json
import socket
import ssl
import time

import pytest

from protocol.client.errors import TokenError
from protocol.client.oauth.endpoint import TokenEndpoint
from tests.support.certificates import Authority
from tests.support.token_server import CLIENT, SECRET, TokenServer


def endpoint(server, secret=SECRET, **more):
    form = {"grant_type": "client_credentials", "scope": "a b"}
    return TokenEndpoint(server.url, lambda: form, (CLIENT, secret), **more)


def said(source):
    with pytest.raises(TokenError) as error:
        source("broker")
    assert error.value.to_do
    return str(error.value), error.value.curable


def test_a_token_for_client_credentials(server):
    token = endpoint(server)("broker")
    assert token.subject == CLIENT
    assert token.ends is not None
    assert 3500 < token.ends - time.time() < 3601
    [(headers, form)] = server.asked
    assert form == {"grant_type": "client_credentials", "scope": "a b"}
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode() == f"{CLIENT}:{SECRET}"
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert headers["Accept"] == "application/json"


@pytest.mark.parametrize(
    ("given", "seconds"), [(60, 60), ("60", 60), (7200, 3600), (None, 3600), ("soon", 3600), ([], 3600)]
)
def test_a_token_ends_at_the_earlier_of_both_times(server, given, seconds):
    body = {"access_token": server.token(), "expires_in": given}
    server.answer = lambda: (200, "application/json", json.dumps(body))
    assert abs(endpoint(server)("broker").ends - time.time() - seconds) < 10


def test_tokens_that_only_their_issuer_reads_and_id_tokens(server):
    server.answer = lambda: (200, "application/json", '{"access_token": "opaque", "expires_in": 30}')
    token = endpoint(server)("broker")
    assert (token.text, token.ends is not None) == ("opaque", True)
    server.answer = lambda: (201, "application/json", '{"access_token": null, "id_token": "id"}')
    assert endpoint(server)("broker").text == "id"


@pytest.mark.parametrize(
    ("answer", "words", "curable"),
    [
        ((401, "application/json", '{"error": "invalid_client"}'), "HTTP 401 (invalid_client)", False),
        (
            (400, "application/json", '{"error": "e", "error_description": "d\\ne"}'),
            "HTTP 400 (e d e)",
            False,
        ),
        ((404, "text/html", "<html>"), "HTTP 404; look at the address", False),
        ((302, "text/html", "https://login.example/a?b=c"), "a way to https://login.example/a; write", False),
        ((503, "text/html", "<html>"), "HTTP 503; look at what it says in its own log", True),
        ((429, "text/plain", ""), "HTTP 429", True),
        ((200, "text/html; charset=utf-8", "<html>"), "it answers text/html instead of JSON", True),
        ((200, "application/json", '{"token": "x"}'), "it answers JSON without access_token", True),
        ((200, "application/json", '["x"]'), "it answers application/json instead of JSON", True),
        ((200, "application/json", '{"access_token": "a b"}'), "its access_token is no token", True),
        ((200, "application/json", "x" * 1_100_000), "larger than a megabyte", True),
    ],
)
def test_answers_without_a_token(server, answer, words, curable):
    server.answer = lambda: answer
    text, may_pass = said(endpoint(server))
    assert words in text
    assert f"no token from {server.url}: " in text
    assert may_pass is curable


def test_a_secret_that_the_provider_repeats_is_not_shown(server):
    described = {"error": "invalid_client", "error_description": f"secret {SECRET} of {CLIENT} is wrong"}
    server.answer = lambda: (401, "application/json", json.dumps(described))
    text, _ = said(endpoint(server))
    assert "(invalid_client secret *** of isthmus is wrong)" in text
    form = {"grant_type": "password", "username": "ada", "password": "hunter2"}
    described["error_description"] = "ada has not hunter2"
    text, _ = said(TokenEndpoint(server.url, lambda: form))
    assert "ada has not ***" in text
    assert SECRET not in repr(endpoint(server))


def test_nobody_there_and_nobody_who_answers(server):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"http://me:pw@127.0.0.1:{silent.getsockname()[1]}/t?key=pw"
        text, curable = said(TokenEndpoint(where, dict, read_s=0.05))
        assert "/t: no answer within 0.05 s; look whether it runs" in text
        assert "pw" not in text
        assert curable
    text, _ = said(TokenEndpoint(where, dict))
    assert "Connection refused; look whether it runs and can be reached" in text
    text, _ = said(TokenEndpoint("https://no-such-host.invalid/t", dict))
    assert "unknown host no-such-host.invalid" in text


def test_an_answer_that_drips_ends_in_time(server):
    def slowly():
        time.sleep(0.3)
        return 200, "application/json", "{}"

    server.answer = slowly
    text, _ = said(endpoint(server, read_s=0.1))
    assert "no answer within 0.1 s" in text


def test_tls_and_whom_it_trusts(tmp_path):
    authority, other = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.store("broker"))
    with TokenServer(tls=context) as server:
        trusted = ssl.create_default_context(cafile=str(authority.certificate_file))
        assert endpoint(server, context=trusted)("broker").subject == CLIENT
        stranger = ssl.create_default_context(cafile=str(other.certificate_file))
        text, _ = said(endpoint(server, context=stranger))
        assert "its certificate is not trusted: " in text
        assert "ssl.truststore.location in sasl.jaas.config" in text
        plain = TokenEndpoint(server.url.replace("https", "http"), dict, read_s=5)
        text, _ = said(plain)
        assert "no token from http://" in text
