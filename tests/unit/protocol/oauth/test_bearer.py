"""What a client sends for OAUTHBEARER, and what is read out of a token."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.client.oauth.bearer import (
    NotATokenError,
    Token,
    extensions_of,
    first_message,
    refusal,
    unsecured,
)
from tests.support.token_server import encoded


def jwt(claims):
    return f"{encoded({'alg': 'RS256'})}.{encoded(claims)}.c2ln"


def test_the_first_message_is_that_of_rfc_7628():
    assert first_message(Token("abc.def"), ()) == b"n,,\x01auth=Bearer abc.def\x01\x01"
    extensions = extensions_of({"extension_logicalCluster": "lkc-1", "clientId": "x"}, "extension_")
    assert first_message(Token("t"), extensions) == b"n,,\x01auth=Bearer t\x01logicalCluster=lkc-1\x01\x01"


@pytest.mark.parametrize("name", ["auth", "a1", "", "a b"])
def test_extensions_that_brokers_refuse(name):
    with pytest.raises(ValueError, match="letters only"):
        extensions_of({f"extension_{name}": "x"}, "extension_")
    with pytest.raises(ValueError, match="has to have a value"):
        extensions_of({"extension_a": "\x01auth=Bearer other"}, "extension_")


def test_a_token_says_whose_it_is_and_how_long_it_holds():
    token = Token.read(f"\n{jwt({'sub': 'ada', 'iat': 5, 'exp': 65.5})} \n")
    assert (token.subject, token.begins, token.ends) == ("ada", 5, 65.5)
    assert token.text not in repr(token)
    for claims in ({}, {"sub": 7, "exp": "soon", "iat": True}, {"exp": float("inf"), "iat": float("nan")}):
        token = Token.read(jwt(claims))
        assert (token.subject, token.begins, token.ends) == ("", None, None)


@given(st.text(alphabet=st.characters(codec="ascii"), max_size=60))
def test_any_text_is_a_token_or_refused_without_being_repeated(text):
    said = ""
    try:
        assert Token.read(text).text == text.strip()
    except NotATokenError as error:
        said = str(error)
    assert len(text.strip()) < 5 or text.strip() not in said


def test_what_is_no_token():
    for text, why in (
        ("", "empty"),
        (" \n", "empty"),
        ("a b", "no token"),
        ('{"access_token": "x"}', "no token"),
    ):
        with pytest.raises(NotATokenError, match=why):
            Token.read(text)
    assert Token.read("opaque+/~==").ends is None


def test_unsecured_tokens_are_read_as_others():
    token = Token.read(unsecured({"sub": "ada", "iat": 1, "exp": 2}))
    assert (token.subject, token.begins, token.ends) == ("ada", 1, 2)


def test_why_a_broker_refuses():
    assert (
        refusal(json.dumps({"status": "insufficient_scope", "scope": "a"}).encode()) == "insufficient_scope"
    )
    for strange in (b"", b"\xff", b"[]", b'{"status": 3}'):
        assert refusal(strange) == "invalid_token"
