"""SCRAM credentials as Kafka stores them: texts, names of nodes, changes that count together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.security.credential_store import CredentialStore
from broker.security.credential_text import (
    CredentialFormatError,
    credential_from_text,
    credential_to_text,
    node_of_user,
    user_of_node,
)
from broker.security.principals import certificate_principal
from protocol.errors import KafkaError
from protocol.scram import SCRAM_SHA_256, SCRAM_SHA_512, Credential

ONE = SCRAM_SHA_256.credential(b"1" * 32, b"salt", 4096)
OTHER = SCRAM_SHA_512.credential(b"2" * 64, b"other salt", 8192)


class Nodes:
    """/config in memory."""

    def __init__(self):
        self.nodes = {}
        self.follow = None

    async def entity_names(self, kind):
        return list(self.nodes)

    async def entity(self, kind, name):
        return dict(self.nodes.get(name, {}))

    async def change_entity(self, kind, name, edit):
        self.nodes[name] = edit(dict(self.nodes.get(name, {})))

    def on_entity_change(self, kind, follow):
        self.follow = follow


@given(st.binary(max_size=40), st.binary(max_size=64), st.binary(max_size=64), st.integers(1, 10**6))
def test_a_credential_as_text(salt, stored_key, server_key, iterations):
    credential = Credential(salt, stored_key, server_key, iterations)
    assert credential_from_text(credential_to_text(credential)) == credential


@pytest.mark.parametrize("text", ["", "salt=", "salt=!,stored_key=,server_key=,iterations=1", "a=b"])
def test_what_is_no_credential(text):
    with pytest.raises(CredentialFormatError):
        credential_from_text(text)


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1))
def test_names_of_nodes(user):
    node = node_of_user(user)
    assert user_of_node(node) == user
    assert all(char.isascii() and (char.isalnum() or char in "-_.%") for char in node)


def test_names_of_nodes_as_java_writes_them():
    # java: Sanitizer.sanitize("eve, =é~*+/")
    assert node_of_user("eve, =\u00e9~*+/") == "eve%2C%20%3D%C3%A9%7E%2A%2B%2F"


async def test_changes_of_a_user_count_together_and_leave_quotas_alone():
    nodes = Nodes()
    nodes.nodes["ada"] = {"producer_byte_rate": "1000"}
    store = CredentialStore(nodes)
    await store.start()
    await store.change("ada", {"SCRAM-SHA-256": ONE, "SCRAM-SHA-512": OTHER})
    assert nodes.nodes["ada"].keys() == {"producer_byte_rate", "SCRAM-SHA-256", "SCRAM-SHA-512"}
    with pytest.raises(KafkaError):
        await store.change("bob", {"SCRAM-SHA-256": ONE, "SCRAM-SHA-512": None})
    assert store.find("SCRAM-SHA-256", "bob") is None
    assert (store.find("SCRAM-SHA-256", "ada"), store.find("SCRAM-SHA-512", "ada")) == (ONE, OTHER)
    await store.change("ada", {"SCRAM-SHA-256": None, "SCRAM-SHA-512": None})
    assert nodes.nodes["ada"] == {"producer_byte_rate": "1000"}
    assert await store.all_stored() == {}
    assert store.find("SCRAM-SHA-256", "ada") is None


async def test_other_brokers_changes_and_damaged_texts(caplog):
    nodes = Nodes()
    nodes.nodes |= {
        "a%20b": {"SCRAM-SHA-256": credential_to_text(ONE), "SCRAM-SHA-512": "garbage"},
        "<default>": {"producer_byte_rate": "1"},
    }
    store = CredentialStore(nodes)
    await store.start()
    assert store.find("SCRAM-SHA-256", "a b") == ONE
    assert store.find("SCRAM-SHA-512", "a b") is None
    assert "garbage" not in caplog.text
    assert "no effect" in caplog.text
    nodes.nodes["eve"] = {"SCRAM-SHA-512": credential_to_text(OTHER)}
    await nodes.follow("eve")
    await nodes.follow("eve/clients/x")
    assert store.find("SCRAM-SHA-512", "eve") == OTHER
    assert list(await store.all_stored()) == ["a b", "eve"]


def test_whom_a_certificate_names():
    subject = (
        (("countryName", "DE"),),
        (("organizationName", 'a, "b" + c'),),
        (("commonName", "#ada "), ("userId", "1")),
    )
    principal = certificate_principal({"subject": subject})
    assert principal == 'User:CN=\\#ada\\ +UID=1,O=a\\, \\"b\\" \\+ c,C=DE'
