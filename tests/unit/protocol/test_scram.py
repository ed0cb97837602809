"""SCRAM: the RFCs' own examples, and exchanges between our two sides with every kind of user and password."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.security.mechanisms import Refused
from broker.security.scram import ScramServer
from protocol import scram
from protocol.client import scram as client_scram
from protocol.client.scram import ScramClient
from protocol.scram import MECHANISMS, SCRAM_SHA_256, ClientFirst, ScramError

SALT = b"salt of the test"
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=20)


def test_the_example_of_rfc_7677(monkeypatch):
    monkeypatch.setattr(scram, "new_nonce", lambda: "rOprNGfwEbeRWgbNEkqO")
    client = client_scram.ScramClient(SCRAM_SHA_256, "user", "pencil")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert client.final(challenge) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    client.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(ScramError):
        client.verify(b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
@settings(max_examples=20)
@given(user=NAMES, password=st.text(st.characters(exclude_categories=("Cs",)), max_size=20))
def test_the_password_and_no_other_is_proven(mechanism, user, password):
    credential = mechanism.credential(mechanism.salted_password(password, SALT, 4096), SALT, 4096)

    def find(name):
        return credential if name == user else None

    server, client = ScramServer(mechanism, find), ScramClient(mechanism, user, password)
    client.verify(server.answer(client.final(server.answer(client.first()))))
    assert server.user == user
    with pytest.raises(Refused):
        server.answer(client.first())

    server, client = ScramServer(mechanism, find), ScramClient(mechanism, user, password + "x")
    final = client.final(server.answer(client.first()))
    with pytest.raises(Refused) as refused:
        server.answer(final)
    assert refused.value.told is None
    assert server.user is None


@given(st.binary(max_size=200))
def test_what_is_no_message_is_refused(message):
    with pytest.raises(Refused):
        ScramServer(SCRAM_SHA_256, lambda user: None).answer(message)


@pytest.mark.parametrize(
    "message",
    [
        b"n,,n=ada,r=abc,tokenauth=true",
        b"n,a=bob,n=ada,r=abc",
        b"y,,n=ada,r=abc",
        b"p=tls-unique,,n=ada,r=abc",
        b"n,,n=a=da,r=abc",
        b"n,,n=nobody,r=abc",
    ],
)
def test_first_messages_that_are_refused(message):
    credential = SCRAM_SHA_256.credential(b"x" * 32, SALT, 4096)
    server = ScramServer(SCRAM_SHA_256, lambda user: credential if user == "ada" else None)
    with pytest.raises(Refused):
        server.answer(message)


def test_credentials_with_too_few_iterations_are_of_no_use():
    credential = SCRAM_SHA_256.credential(b"x" * 32, SALT, 1000)
    with pytest.raises(Refused, match="too few"):
        ScramServer(SCRAM_SHA_256, lambda user: credential).answer(b"n,,n=ada,r=abc")


def test_reserved_extensions_are_part_of_what_is_signed():
    first = ClientFirst.parse(b"n,a=ada,m=later,n=ada,r=abc,x=y")
    assert first.bare == b"m=later,n=ada,r=abc,x=y"
    assert (first.user, first.authorization_id, first.extensions) == ("ada", "ada", {"x": "y"})


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b"r=other,s=c2FsdA==,i=4096", "nonce"),
        (b"r=%s,s=c2FsdA==,i=4096", "nonce"),
        (b"r=%sx,s=c2FsdA==,i=100", "iterations"),
        (b"r=%sx,s=c2FsdA==,i=100000000", "iterations"),
        (b"e=no", "not the first message"),
    ],
)
def test_a_client_does_not_trust_any_server(challenge, why):
    client = ScramClient(SCRAM_SHA_256, "ada", "secret")
    nonce = client.first().rpartition(b"r=")[2]
    with pytest.raises(ScramError, match=why):
        client.final(challenge.replace(b"%s", nonce))
