"""Stores as Java's keytool writes them: opened by what they are, with what Java takes from them."""

import asyncio
import os
import ssl
import tempfile

import confluent_kafka
import pytest

from protocol.client.access import Access
from protocol.client.tls import TlsSettings, TlsSettingsError, client_context, server_context
from tests.support.keytool import LEGACY, PASSWORD, Keytool, needs_keytool

pytestmark = [needs_keytool, pytest.mark.timeout(600)]  # a dozen starts of Java, on a busy machine too


@pytest.fixture(scope="module")
def keytool(tmp_path_factory):
    return Keytool(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def stores(keytool):
    return {
        "key": keytool.key_store("key.jks"),  # PKCS12 all the same
        "bare": keytool.key_store("bare.p12", with_authority=False),
        "self": keytool.self_signed("self.p12"),
        "trust": keytool.trust_store("trust.jks"),
    }


def key(path, **changes):
    return TlsSettings(keystore_location=str(path), keystore_password=PASSWORD, **changes)


def trust(path, **changes):
    return TlsSettings(truststore_location=str(path), truststore_password=PASSWORD, **changes)


async def shaken(server, client):
    """Both sides of one handshake on a socket."""

    async def answer(reader, writer):
        try:
            writer.write(await reader.readexactly(1))
            await writer.drain()
        finally:
            writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server)
    port = listening.sockets[0].getsockname()[1]
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        try:
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
        finally:
            writer.close()
    finally:
        listening.close()


@pytest.mark.parametrize("form", ["JKS", "PKCS12", "pkcs12"])
async def test_a_handshake_with_both_stores(stores, form):
    server = server_context(key(stores["key"], keystore_type=form))
    await shaken(server, client_context(trust(stores["trust"], truststore_type=form)))


async def test_stores_of_an_older_java(tmp_path):
    old = Keytool(tmp_path, *LEGACY)
    store = old.self_signed("self.p12")
    await shaken(server_context(key(store)), client_context(trust(store)))
    assert client_context(trust(old.trust_store())).cert_store_stats()["x509"] == 1


async def test_a_client_is_known_by_its_store_too(stores):
    settings = {"truststore_location": str(stores["trust"]), "truststore_password": PASSWORD}
    server = server_context(key(stores["key"], **settings), "required")
    await shaken(server, client_context(key(stores["bare"], **settings)))
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await shaken(server, client_context(trust(stores["trust"])))


async def test_a_store_with_a_key_is_trusted_as_java_does(stores):
    """The authority under an alias of its own counts; the same one, as part of the chain alone, does not."""
    server = server_context(key(stores["key"]))
    await shaken(server, client_context(trust(stores["key"])))
    with pytest.raises(ssl.SSLCertVerificationError):
        await shaken(server, client_context(trust(stores["bare"])))
    await shaken(server_context(key(stores["self"])), client_context(trust(stores["self"])))


def test_no_key_touches_the_disk_in_clear(stores, monkeypatch):
    seen = []
    loaded = ssl.SSLContext.load_cert_chain

    def look(self, path, keyfile=None, password=None):
        seen.append((path, path.read_text(), oct(os.stat(path.parent).st_mode & 0o777)))
        return loaded(self, path, keyfile, password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", look)
    server_context(key(stores["key"]))
    ((path, text, mode),) = seen
    assert "BEGIN ENCRYPTED PRIVATE KEY" in text
    assert "BEGIN PRIVATE KEY" not in text
    assert (mode, path.exists()) == ("0o700", False)
    assert text.count("BEGIN CERTIFICATE") == 2  # its own and the authority's, once
    assert not [name for name in os.listdir(tempfile.gettempdir()) if name == path.parent.name]


def test_librdkafka_gets_texts(stores):
    access = Access(
        "127.0.0.1:1",
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(stores["trust"]),
            "ssl.truststore.password": PASSWORD,
            "ssl.keystore.type": "JKS",
            "ssl.keystore.location": str(stores["key"]),
            "ssl.keystore.password": PASSWORD,
        },
    )
    settings = access.librdkafka()
    assert not [name for name in settings if name.endswith(".location")]
    assert PASSWORD not in str(settings)
    confluent_kafka.Consumer(settings | {"group.id": "g", "log_level": 0}).close()  # it can read them


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"truststore_password": "wrong"}, r"ssl\.truststore\.location: .*cannot be opened: wrong password"),
        ({"truststore_password": None}, "needs a password"),
        ({"truststore_type": "PEM"}, r"ssl\.truststore\.type: PEM: .* is no text; a store of keytool's"),
        ({"truststore_location": "/nowhere.p12"}, "No such file"),
    ],
)
def test_what_is_wrong_with_a_store(stores, changes, why):
    with pytest.raises(TlsSettingsError, match=why) as raised:
        client_context(
            TlsSettings(
                **{"truststore_location": str(stores["trust"]), "truststore_password": PASSWORD, **changes}
            )
        )
    assert PASSWORD not in str(raised.value)


def test_a_trust_store_has_no_key_for_a_listener(stores):
    with pytest.raises(TlsSettingsError, match="holds no private key with its certificate"):
        server_context(key(stores["trust"]))


async def test_stores_in_javas_older_format(keytool, stores):
    store = keytool.in_jks(stores["key"], "old.jks")
    bare = keytool.in_jks(stores["bare"], "old-bare.jks", "key-secret")
    trusted = keytool.trust_store("old-trust.jks", "JKS")
    both = {"truststore_location": str(trusted), "truststore_password": PASSWORD}
    server = server_context(key(store, **both), "required")
    await shaken(server, client_context(key(bare, key_password="key-secret", **both)))
    await shaken(
        server, client_context(key(bare, key_password="key-secret", truststore_location=str(trusted)))
    )
    assert client_context(trust(store)).cert_store_stats()["x509"] == 2  # the key's, and the alias of its own
    assert client_context(trust(bare)).cert_store_stats()["x509"] == 1
    for wrong, why in (
        (key(bare), "holds a key with another password: set ssl.key.password"),
        (key(trusted), "holds no private key with its certificate"),
        (TlsSettings(keystore_location=str(store)), "needs a password"),
        (TlsSettings(truststore_location=str(store), truststore_password="x"), "wrong password"),
        (trust(store, truststore_type="PEM"), "is no text; a store of keytool's"),
    ):
        with pytest.raises(TlsSettingsError, match=why) as raised:
            client_context(wrong)
        assert PASSWORD not in str(raised.value)


def test_a_store_that_breaks_off(keytool, tmp_path):
    whole = keytool.trust_store("whole.jks", "JKS").read_bytes()
    path = tmp_path / "half.jks"
    for length in range(4, len(whole) - 20):
        path.write_bytes(whole[:length])
        with pytest.raises(TlsSettingsError, match="the file is damaged"):
            client_context(TlsSettings(truststore_location=str(path)))


def test_what_is_no_store_at_all(tmp_path):
    for content, why in (
        (b"\x00\x01", "is neither a PKCS12 nor a JKS store"),
        (b"0\x82zz", "cannot be opened"),
        (b"\xce\xce\xce\xce\x00", "JCEKS.*keytool -importkeystore"),
        (b"\xfe\xed\xfe\xed\0\0\0\3" + b"\0" * 24, "version 3"),
    ):
        path = tmp_path / "x.jks"
        path.write_bytes(content)
        with pytest.raises(TlsSettingsError, match=why):
            client_context(TlsSettings(truststore_location=str(path)))
