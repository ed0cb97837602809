"""Settings of TLS and SASL on listeners, and those of one listener with its own laid over the general ones.

Kafka's names and defaults; `listener.name.<listener>.` in front makes a setting one listener's own, and
`listener.name.<listener>.<mechanism>.` one mechanism's. Texts only: `broker.security`
reads keys and users.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.config.definition import definitions, setting, unknown
from broker.config.kinds import Kind, at_least, between, one_of

PREFIX: Final = "listener.name."
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MAX_INT = 2**31 - 1
_NO_KERBEROS = (
    "Taken as Kafka takes it; without effect while no listener has GSSAPI, which none can have here."
)


@dataclass(frozen=True, kw_only=True)
class SecuritySettings:
    """What a listener needs to encrypt and to know its clients."""

    ssl_keystore_type: str = setting(
        "ssl.keystore.type", Kind.STRING, "JKS", "Form of the key store: PEM, or PKCS12 or JKS for either."
    )
    ssl_keystore_location: str | None = setting(
        "ssl.keystore.location", Kind.STRING, None, "File with the private key and its certificates."
    )
    ssl_keystore_certificate_chain: str | None = setting(
        "ssl.keystore.certificate.chain", Kind.PASSWORD, None, "Certificates in PEM, instead of a file."
    )
    ssl_keystore_key: str | None = setting(
        "ssl.keystore.key", Kind.PASSWORD, None, "Private key in PEM (PKCS 8), instead of a file."
    )
    ssl_keystore_password: str | None = setting(
        "ssl.keystore.password", Kind.PASSWORD, None, "Password of a PKCS12 store; not for PEM."
    )
    ssl_key_password: str | None = setting(
        "ssl.key.password", Kind.PASSWORD, None, "Password of an encrypted private key."
    )
    ssl_truststore_type: str = setting(
        "ssl.truststore.type",
        Kind.STRING,
        "JKS",
        "Form of the trust store: PEM, or PKCS12 or JKS for either.",
    )
    ssl_truststore_location: str | None = setting(
        "ssl.truststore.location", Kind.STRING, None, "File with the certificates that are trusted."
    )
    ssl_truststore_certificates: str | None = setting(
        "ssl.truststore.certificates", Kind.PASSWORD, None, "Trusted certificates in PEM, instead of a file."
    )
    ssl_truststore_password: str | None = setting(
        "ssl.truststore.password", Kind.PASSWORD, None, "Password of a PKCS12 store; not for PEM."
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols", Kind.LIST, ("TLSv1.2", "TLSv1.3"), "Versions of TLS that are spoken."
    )
    ssl_client_auth: str = setting(
        "ssl.client.auth",
        Kind.STRING,
        "none",
        "Whether clients must show a certificate; for SASL_SSL only a listener's own setting counts.",
        one_of("required", "requested", "none"),
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "ssl.endpoint.identification.algorithm",
        Kind.STRING,
        "https",
        "How brokers check the name in each other's certificates; empty for not at all.",
        one_of("https", ""),
    )
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        "sasl.enabled.mechanisms", Kind.LIST, ("GSSAPI",), "SASL mechanisms that clients may use."
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        "sasl.mechanism.inter.broker.protocol",
        Kind.STRING,
        "GSSAPI",
        "SASL mechanism that brokers use among themselves.",
    )
    sasl_server_max_receive_size: int = setting(
        "sasl.server.max.receive.size",
        Kind.INT,
        524_288,
        "Largest request of a client that has not authenticated yet.",
        at_least(1),
    )
    sasl_kerberos_kinit_cmd: str = setting(
        "sasl.kerberos.kinit.cmd", Kind.STRING, "/usr/bin/kinit", _NO_KERBEROS
    )
    sasl_kerberos_min_time_before_relogin: int = setting(
        "sasl.kerberos.min.time.before.relogin", Kind.LONG, 60_000, _NO_KERBEROS
    )
    sasl_kerberos_ticket_renew_jitter: float = setting(
        "sasl.kerberos.ticket.renew.jitter", Kind.DOUBLE, 0.05, _NO_KERBEROS
    )
    sasl_kerberos_ticket_renew_window_factor: float = setting(
        "sasl.kerberos.ticket.renew.window.factor", Kind.DOUBLE, 0.8, _NO_KERBEROS
    )
    connections_max_reauth_ms: int = setting(
        "connections.max.reauth.ms",
        Kind.LONG,
        0,
        "A client has to authenticate again after this time; 0 for never.",
        at_least(0),
    )
    connection_failed_authentication_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms",
        Kind.INT,
        100,
        "A refused client hears of it, and is disconnected, after this time.",
        between(0, _MAX_INT),
    )


@dataclass(frozen=True, kw_only=True)
class ListenerSecurity(SecuritySettings):
    """`jaas` is the text of a mechanism's `sasl.jaas.config`, by mechanism, `max_reauth_ms` likewise."""

    listener: str = ""
    protocol: str = "PLAINTEXT"
    jaas: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    max_reauth_ms: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def authenticated(self) -> bool:
        return self.protocol.startswith("SASL")

    def setting_name(self, name: str, mechanism: str = "") -> str:
        """The full name of a setting that is this listener's own."""
        return f"{PREFIX}{self.listener.lower()}.{mechanism.lower()}{'.' * bool(mechanism)}{name}"


_DEFINITIONS = definitions(SecuritySettings)
_BROKER_WIDE: Final = ("connection.failed.authentication.delay.ms", "sasl.mechanism.inter.broker.protocol")
_OF_LISTENERS: Final = tuple(name for name in _DEFINITIONS if name not in _BROKER_WIDE)
_OF_MECHANISMS: Final = ("sasl.jaas.config", "connections.max.reauth.ms")


def check_listener_setting(name: str, text: str) -> None:
    """Whether `listener.name.….` is a setting of a listener. Raises ValueError naming it."""
    _, own = _split(name)
    mechanism, _, of_mechanism = own.partition(".")
    if mechanism.upper() in MECHANISMS and of_mechanism in _OF_MECHANISMS:
        if of_mechanism in _DEFINITIONS:
            _parse(of_mechanism, name, text)
    elif own in _OF_LISTENERS:
        _parse(own, name, text)
    else:
        known = [*_OF_LISTENERS, *(f"{item.lower()}.{one}" for item in MECHANISMS for one in _OF_MECHANISMS)]
        head = name.removesuffix(own)
        raise ValueError(unknown(name, [head + item for item in known]))


def listener_security(
    general: SecuritySettings, listener: str, protocol: str, given: Mapping[str, str]
) -> ListenerSecurity:
    """The settings of one listener. `given` are texts that `check_listener_setting` has seen."""
    values = {name: getattr(general, name) for name in SecuritySettings.__dataclass_fields__}
    if protocol == "SASL_SSL":
        values["ssl_client_auth"] = "none"  # clients say who they are by SASL, unless told otherwise here
    jaas: dict[str, str] = {}
    max_reauth_ms: dict[str, int] = {}
    for name, text in given.items():
        if not name.startswith(PREFIX) or _split(name)[0] != listener.lower():
            continue
        own = _split(name)[1]
        mechanism, _, of_mechanism = own.partition(".")
        if own in _DEFINITIONS:
            values[_DEFINITIONS[own].attribute] = _DEFINITIONS[own].parse(text)
        elif of_mechanism == "sasl.jaas.config":
            jaas[mechanism.upper()] = text
        elif of_mechanism in _DEFINITIONS:
            max_reauth_ms[mechanism.upper()] = int(text)
    return ListenerSecurity(
        **values, listener=listener, protocol=protocol, jaas=jaas, max_reauth_ms=max_reauth_ms
    )


def _split(name: str) -> tuple[str, str]:
    """Listener and the rest, both as written."""
    listener, _, own = name.removeprefix(PREFIX).partition(".")
    return listener.lower(), own


def _parse(own: str, name: str, text: str) -> None:
    try:
        _DEFINITIONS[own].parse(text)
    except ValueError as error:
        raise ValueError(f"{name}: {str(error).removeprefix(own + ': ')}") from None
