"""OAUTHBEARER with a broker: taken, refused, refused after it was taken, and no token at all."""

import time

import pytest

from protocol.client import AuthenticationError, ClusterClient, Connection, RetryPolicy, TokenError
from protocol.client.doors import explained
from protocol.client.oauth.bearer import Token
from protocol.client.oauth.keeping import Refreshing, Tokens
from protocol.client.security import ClientSecurity, SaslBearer
from protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.support.fake_broker import FakeBroker, Peer
from tests.support.talking import echo, names, question


class Broker:
    """Takes the tokens in `valid`; `shown` has all that it was told."""

    def __init__(self, *valid: str, lifetime_ms: int = 0) -> None:
        self.valid = set(valid)
        self.shown: list[bytes] = []
        self.lifetime_ms = lifetime_ms

    async def __call__(self, peer: Peer) -> None:
        shake = await peer.request()
        assert shake.body.mechanism == "OAUTHBEARER"
        await peer.answer(shake, SaslHandshakeResponse(mechanisms=["OAUTHBEARER"]))
        login = await peer.request()
        message = bytes(login.body.auth_bytes)
        self.shown.append(message)
        if message.split(b"\x01")[1].removeprefix(b"auth=Bearer ").decode() in self.valid:
            await peer.answer(login, SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms))
            await echo(peer)
            return
        await peer.answer(login, SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}'))
        told = await peer.request()
        assert isinstance(told.body, SaslAuthenticateRequest)
        assert bytes(told.body.auth_bytes) == b"\x01"
        await peer.answer(told, SaslAuthenticateResponse(error_code=58, error_message='{"status":"expired"}'))


def source(*texts: str, ends: float | None = None):
    """Gives one after the other, the last one again and again."""
    left = list(texts)
    return lambda host: Token(left.pop(0) if len(left) > 1 else left[0], ends=ends or time.time() + 600)


def sasl(given, **more) -> SaslBearer:
    return SaslBearer(Tokens(given, Refreshing(backoff_s=0), "https://idp/token"), **more)


async def opened(port: int, by: SaslBearer) -> Connection:
    return await Connection.open("127.0.0.1", port, sasl=by)


async def test_a_token_that_is_taken():
    broker = Broker("one", lifetime_ms=100)
    async with FakeBroker(broker) as server:
        connection = await opened(server.port, sasl(source("one"), extensions=(("a", "b"),)))
        assert names(await connection.send(question("x"))) == ["x"]
        assert broker.shown == [b"n,,\x01auth=Bearer one\x01a=b\x01\x01"]
        until = time.monotonic() + 5
        while not connection.retired:
            assert time.monotonic() < until
        await connection.close()


async def test_a_token_that_is_refused_from_the_start():
    async with FakeBroker(Broker()) as server:
        with pytest.raises(AuthenticationError) as refused:
            await opened(server.port, sasl(source("secret")))
    said = str(refused.value)
    assert 'the token from https://idp/token is refused: {"status":"expired"}' in said
    assert "secret" not in said
    told = explained(refused.value, "east", "h:1", "SASL_SSL")
    assert "sasl.oauthbearer.expected.audience" in str(told)


async def test_one_that_has_ended_by_our_clock_is_shown_all_the_same_and_the_refusal_says_so():
    async with FakeBroker(Broker()) as server:
        with pytest.raises(AuthenticationError, match=r"\(it ended 5\d s ago by this machine's clock\)"):
            await opened(server.port, sasl(source("old", ends=time.time() - 50)))


async def test_a_client_whose_kept_token_is_not_taken_any_more_gets_another():
    """Revoked, or its key was changed: brokers are asked again with a new one."""
    broker = Broker("one")
    async with FakeBroker(broker) as server:
        by = sasl(source("one", "two"))
        await (await opened(server.port, by)).close()
        broker.valid = {"two"}
        with pytest.raises(TokenError, match=r"is refused: .*; another one is asked for") as refused:
            await opened(server.port, by)
        assert refused.value.curable
        await (await opened(server.port, by)).close()


@pytest.mark.parametrize("curable", [True, False])
async def test_without_a_token_no_other_broker_is_blamed(curable):
    asked = []

    def failing(host):
        asked.append(host)
        raise TokenError("no token from https://idp/token: HTTP 503", "look there", curable=curable)

    async with FakeBroker(Broker()) as one, FakeBroker(Broker()) as two:
        both = f"{one.address},{two.address}"
        security = ClientSecurity(sasl=sasl(failing))
        policy = RetryPolicy(total_s=0.3, first_wait_s=0.01, longest_wait_s=0.01)
        client = ClusterClient(both, config=security, name="east", first_contact=policy)
        with pytest.raises(TokenError) as error:
            async with client:
                pass
    where = f"east cannot be reached (SASL_PLAINTEXT at {both}): "
    assert str(error.value) == f"{where}no token from https://idp/token: HTTP 503; look there"
    assert set(asked) == {"127.0.0.1"}
    assert len(asked) > 2 if curable else len(asked) == 1


async def test_each_cluster_has_tokens_of_its_own():
    """Strimzi's issues 5897 and 9786: with tokens at both ends, or in a task only, nothing went."""
    east, west = Broker("e"), Broker("w")
    async with FakeBroker(east) as one, FakeBroker(west) as two:
        for server, text in ((one, "e"), (two, "w")):
            connection = await opened(server.port, sasl(source(text)))
            await connection.close()
    assert [len(east.shown), len(west.shown)] == [1, 1]
