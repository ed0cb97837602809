"""The order of an authentication with a virtual clock: what any frame leads to, and when sessions end."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.security.authenticator import Authenticator, State
from broker.security.plain import PlainServer
from protocol.codec.schema import Request
from protocol.errors import ErrorCode
from protocol.frames import decode_response, encode_request
from protocol.messages.metadata_request import MetadataRequest
from protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.support.clock import VirtualClock

ADA = b"\0ada\0pw"


def frame(request: Request[Any], version: int) -> memoryview:
    return memoryview(b"".join(encode_request(request, version, 5, "x"))[4:])


HANDSHAKE = frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
PASSWORD = frame(SaslAuthenticateRequest(auth_bytes=ADA), 2)
NO_PASSWORD = frame(SaslAuthenticateRequest(auth_bytes=b"\0ada\0no"), 2)


def authenticator(clock: VirtualClock, session_ms: int = 0) -> Authenticator:
    servers = {name: lambda: PlainServer({"ada": "pw", "bob": "pw"}) for name in ("PLAIN", "OTHER")}
    return Authenticator(servers, clock.monotonic, {"PLAIN": session_ms})


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([HANDSHAKE, NO_PASSWORD])), max_size=5))
def test_nobody_gets_in_without_the_password(frames):
    unknown = authenticator(VirtualClock())
    for data in frames:
        step = unknown.take(memoryview(data))
        if step.failure is not None:
            assert unknown.state is State.FAILED
            break
    assert not unknown.done
    assert unknown.user is None


@given(st.lists(st.sampled_from([HANDSHAKE, PASSWORD, NO_PASSWORD]), max_size=6))
def test_the_one_way_in(frames):
    known = authenticator(VirtualClock())
    for data in frames:
        if known.take(data).failure is not None or known.done:
            break
    assert known.done == (frames[:2] == [HANDSHAKE, PASSWORD])


def test_once_failed_nothing_helps(clock):
    unknown = authenticator(clock)
    unknown.take(HANDSHAKE)
    step = unknown.take(NO_PASSWORD)
    assert step.answer is not None
    _, answer = decode_response(memoryview(b"".join(step.answer)[4:]), SaslAuthenticateRequest, 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    for data in (HANDSHAKE, PASSWORD):
        assert unknown.take(data).failure is not None
    assert not unknown.done


def test_a_session_ends_when_it_is_due_and_not_before(clock):
    known = authenticator(clock, session_ms=10_000)
    known.take(HANDSHAKE)
    step = known.take(PASSWORD)
    assert step.answer is not None
    _, answer = decode_response(memoryview(b"".join(step.answer)[4:]), SaslAuthenticateRequest, 2)
    assert answer.session_lifetime_ms == 10_000
    clock.advance(10.0)
    assert not known.expired()
    clock.advance(0.1)
    assert known.expired()
    assert known.may_begin_again()
    known.take(HANDSHAKE)
    known.take(PASSWORD)
    assert known.done
    assert not known.expired()


def test_beginning_again_is_for_once_a_second(clock):
    known = authenticator(clock, session_ms=10_000)
    known.take(HANDSHAKE)
    known.take(PASSWORD)
    assert known.may_begin_again()
    known.take(HANDSHAKE)
    known.take(PASSWORD)
    assert not known.may_begin_again()
    clock.advance(1.0)
    assert known.may_begin_again()


def test_a_session_does_not_change_hands(clock):
    for mechanism, password in (("PLAIN", b"\0bob\0pw"), ("OTHER", ADA)):
        known = authenticator(clock, session_ms=10_000)
        known.take(HANDSHAKE)
        known.take(PASSWORD)
        assert known.may_begin_again()
        assert known.take(frame(SaslHandshakeRequest(mechanism=mechanism), 1)).failure is None
        step = known.take(frame(SaslAuthenticateRequest(auth_bytes=password), 2))
        assert step.failure is not None
        assert not known.done


def test_another_request_amid_the_exchange_is_out_of_place(clock):
    unknown = authenticator(clock)
    unknown.take(HANDSHAKE)
    step = unknown.take(frame(MetadataRequest(topics=[]), 9))
    assert step.out_of_place
    assert step.failure is not None
