"""Kafka's security settings of a client: JAAS texts, PEM stores, and what is wrong with them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.client import SaslPlain, SaslScram
from protocol.client.jaas import JaasError, parse_jaas
from protocol.client.properties import client_security, without_effect
from protocol.client.security import SecuritySettingsError
from protocol.client.tls import TlsSettings, TlsSettingsError, client_context, server_context
from tests.support.certificates import Authority

JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="ada" password="s=e;c\\"ret";'
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


def test_a_login_module():
    module = parse_jaas(JAAS)
    assert module.name == "PlainLoginModule"
    assert module.options == {"username": "ada", "password": 's=e;c"ret'}
    assert "ret" not in repr(module)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(max_size=20), max_size=5))
def test_options_come_back_as_they_were_written(options):
    def quoted(text):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    text = "a.b.Module required " + " ".join(f"{name} = {quoted(value)}" for name, value in options.items())
    assert parse_jaas(text + " ;").options == options


@given(st.text(max_size=40))
def test_other_texts_are_refused_and_not_repeated(text):
    told = ""
    try:
        parse_jaas("secret " + text)
    except JaasError as error:
        told = str(error)
    assert "secret" not in told


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not"),
        ("Module required a=b", "semicolon"),
        ("Module a=b;", "needs one of"),
        ('Module required a="b', "quote"),
        ("Module required a=b; Other required;", "more than one"),
        ("Module required a b;", "option number 1"),
    ],
)
def test_what_is_wrong_with_a_login_module(text, why):
    with pytest.raises(JaasError, match=why):
        parse_jaas(text)


def test_names_and_passwords():
    jaas = {"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": JAAS}
    assert client_security({**jaas, "sasl.mechanism": "PLAIN"}).sasl == SaslPlain("ada", 's=e;c"ret')
    scram = client_security({**jaas, "sasl.mechanism": "SCRAM-SHA-512"}).sasl
    assert scram == SaslScram("ada", 's=e;c"ret', "SCRAM-SHA-512")
    assert "ret" not in repr(scram)
    single = {"sasl.mechanism": "PLAIN", "sasl.username": "bob", "sasl.password": "pw"}
    assert client_security({**jaas, **single, "sasl.jaas.config": JAAS}).sasl == SaslPlain("ada", 's=e;c"ret')
    assert client_security({"security.protocol": "sasl_plaintext", **single}).sasl == SaslPlain("bob", "pw")
    assert client_security({}).sasl is None


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"security.protocol": "TLS"}, "security.protocol: TLS"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.username: not set"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "sasl.jaas.config": JAAS},
            "GSSAPI is not offered",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "GSSAPI",
                "sasl.jaas.config": 'M required useKeyTab="x";',
            },
            "GSSAPI is not offered; use PLAIN",
        ),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": JAAS}, "sasl.mechanism: is not set"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "M required;"},
            "needs username",
        ),
        ({"ssl.trustore.location": "a.pem"}, "ssl.trustore.location: .*did you mean ssl.truststore.location"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "x"}, "identification"),
    ],
)
def test_what_is_wrong_with_a_clients_settings(settings, why):
    with pytest.raises(SecuritySettingsError, match=why):
        client_security(settings)


def test_what_only_java_takes_is_passed_over():
    for name in (
        "ssl.cipher.suites",
        "sasl.login.callback.handler.class",
        "sasl.oauthbearer.clock.skew.seconds",
    ):
        assert client_security({name: "x"}).sasl is None
        assert without_effect(name)
    assert not without_effect("ssl.truststore.location")


def test_pem_stores_as_files_and_as_one_line(authority):
    store = authority.store("broker")
    text = store.read_text()
    key, chain = text[: text.index("-----BEGIN CERT")], text[text.index("-----BEGIN CERT") :]
    for settings in (
        TlsSettings(keystore_type="PEM", keystore_location=str(store)),
        TlsSettings(keystore_type="PEM", keystore_key=key, keystore_certificate_chain=chain),
        TlsSettings(
            keystore_type="pem",
            keystore_key=key.replace("\n", " "),
            keystore_certificate_chain=chain.replace("\n", "\\n"),
            enabled_protocols=("TLSv1.3",),
        ),
        TlsSettings(
            keystore_type="PEM", keystore_location=str(authority.store("b", "pw")), key_password="pw"
        ),
    ):
        server_context(settings)
        assert "PRIVATE KEY" not in repr(settings)
    trusting = TlsSettings(truststore_type="PEM", truststore_location=str(authority.certificate_file))
    assert len(client_context(trusting).get_ca_certs()) == 1
    assert not client_context(trusting, check_host=False).check_hostname


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"keystore_type": "JKS"}, r"ssl\.keystore\.type: JKS: .*broker\.pem is PEM, set this to PEM"),
        ({"keystore_type": "BCFKS"}, r"ssl\.keystore\.type: BCFKS: is not among PEM, PKCS12, JKS"),
        ({"truststore_certificates": "x"}, r"ssl\.truststore\.type: JKS: texts are in PEM"),
        ({"keystore_location": "nowhere.pem"}, "No such file"),
        ({"keystore_location": None}, "needs a key and a certificate"),
        ({"keystore_password": "pw"}, "PEM has none"),
        ({"keystore_key": "x"}, "without the other"),
        ({"key_password": "wrong", "encrypted": True}, "cannot be used: .*look at ssl.key.password"),
        ({"encrypted": True}, "set ssl.key.password"),
        ({"enabled_protocols": ("TLSv1.1",)}, "TLSv1.1 is not among"),
        ({"truststore_certificates": "x", "truststore_type": "PEM"}, "is not PEM"),
        ({"trust_key": True}, "holds no certificate|is not PEM"),
    ],
)
def test_what_is_wrong_with_a_store(authority, changes, why):
    changes = dict(changes)
    store = authority.store("broker", "pw" if changes.pop("encrypted", False) else None)
    if changes.pop("trust_key", False):
        key = store.read_text().partition("-----BEGIN CERT")[0]
        changes |= {"truststore_type": "PEM", "truststore_certificates": key}
    with pytest.raises(TlsSettingsError, match=why):
        server_context(TlsSettings(**{"keystore_type": "PEM", "keystore_location": str(store), **changes}))
