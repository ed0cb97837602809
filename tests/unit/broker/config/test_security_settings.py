"""Settings of listeners that encrypt or authenticate: its own over the general ones, and mistakes."""

import pytest

from broker.config import ConfigError, dynamic, load

JAAS = 'PlainLoginModule required username="b" password="pw" user_b="pw";'
SASL = {
    "listeners": "SASL_PLAINTEXT://:9092",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
}
TLS = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/somewhere/store.pem"}


def test_what_a_listener_says_for_itself_counts():
    config = load(
        {
            **SASL,
            **TLS,
            "listeners": "PLAINTEXT://:1,SASL_PLAINTEXT://:2,EXTERNAL://:3",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,external:SASL_SSL"
            ),
            "ssl.client.auth": "required",
            "connections.max.reauth.ms": "60000",
            "listener.name.external.sasl.enabled.mechanisms": "SCRAM-SHA-256, SCRAM-SHA-512",
            "listener.name.EXTERNAL.scram-sha-512.connections.max.reauth.ms": "5000",
            "listener.name.external.ssl.keystore.location": "/elsewhere/store.pem",
        }
    )
    external, sasl = config.security_of("EXTERNAL"), config.security_of("SASL_PLAINTEXT")
    assert external.sasl_enabled_mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert (external.connections_max_reauth_ms, external.max_reauth_ms) == (60_000, {"SCRAM-SHA-512": 5000})
    assert external.ssl_keystore_location == "/elsewhere/store.pem"
    assert external.ssl_client_auth == "none"  # Kafka: with SASL only a listener's own setting counts
    assert (external.encrypted, external.authenticated) == (True, True)
    assert (sasl.encrypted, sasl.authenticated, sasl.jaas) == (False, True, {"PLAIN": JAAS})
    assert "pw" not in repr(sasl)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI, which is not offered"),
        ({"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"}, "OAUTHBEARER, which is not offered"),
        ({"sasl.enabled.mechanisms": ""}, "has none"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-512"}, "PLAIN is not among the mechanisms"),
        (
            {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"},
            r"scram-sha-512\.sasl\.jaas\.config: not",
        ),
        (
            {"listener.name.sasl_plaintext.plain.sasl.jaas.config": None},
            r"plain\.sasl\.jaas\.config: not set",
        ),
        ({"listener.name.other.ssl.client.auth": "none"}, "there is no listener OTHER"),
        (
            {"listener.name.sasl_plaintext.ssl.client.auth": "maybe"},
            r"^listener\.name\.sasl_plaintext\.ssl\.client",
        ),
        (
            {"listener.name.sasl_plaintext.ssl.client.aut": "none"},
            "did you mean listener.name.sasl_plaintext.ssl.c",
        ),
        ({"listener.name.sasl_plaintext.max.connections": "5"}, "unknown setting"),
        ({"listeners": "SASL_SSL://:9092", "security.inter.broker.protocol": "SASL_SSL"}, "needs a key"),
        (
            {
                "ssl.keystore.location": "x.bks",
                "ssl.keystore.type": "BCFKS",
                "listeners": "SASL_PLAINTEXT://:1,SSL://:2",
            },
            "BCFKS is not read",
        ),
    ],
)
def test_mistakes(changes, complaint):
    settings = {name: text for name, text in {**SASL, **changes}.items() if text is not None}
    with pytest.raises(ConfigError, match=complaint) as raised:
        load(settings)
    assert "pw" not in str(raised.value)


def test_settings_of_listeners_need_a_restart():
    with pytest.raises(dynamic.NotDynamic):
        dynamic.check({"listener.name.external.ssl.keystore.location": "x"})
