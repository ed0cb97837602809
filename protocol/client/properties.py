"""`ClientSecurity` out of Kafka's client settings: security.protocol, sasl.*, ssl.* of a `client.properties`.

Errors name the setting and never repeat a secret. Settings of other kinds are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocol.client.jaas import JaasError, parse_jaas
from protocol.client.security import ClientSecurity, Sasl, SaslPlain, SaslScram
from protocol.client.tls import TlsSettings, client_context
from protocol.scram import MECHANISMS

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
OFFERED: Final = ("PLAIN", *MECHANISMS)


class SecuritySettingsError(ValueError):
    """A setting is wrong or missing; the message begins with its name."""


def client_security(properties: Mapping[str, str]) -> ClientSecurity:
    """Raises SecuritySettingsError, TlsSettingsError.

    Name and password come from `sasl.jaas.config`, or from `sasl.username` and `sasl.password` as
    librdkafka has them.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise SecuritySettingsError(f"security.protocol: {protocol} is not among {', '.join(PROTOCOLS)}")
    context = None
    if protocol.endswith("SSL"):
        check_host = properties.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
        if check_host not in ("https", "", "none"):
            raise SecuritySettingsError("ssl.endpoint.identification.algorithm: https, or empty for no check")
        context = client_context(TlsSettings.from_properties(properties), check_host=check_host == "https")
    return ClientSecurity(context, _sasl(properties) if protocol.startswith("SASL") else None)


def _sasl(properties: Mapping[str, str]) -> Sasl:
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI")).strip()
    if "sasl.jaas.config" in properties:
        return sasl_from_jaas(mechanism, properties["sasl.jaas.config"])
    missing = [name for name in ("sasl.username", "sasl.password") if name not in properties]
    if missing:
        raise SecuritySettingsError(f"{missing[0]}: not set, nor is sasl.jaas.config")
    return sasl_of(mechanism, properties["sasl.username"], properties["sasl.password"])


def sasl_from_jaas(mechanism: str, text: str, name: str = "sasl.jaas.config") -> Sasl:
    """`name` is the setting that errors speak of."""
    try:
        options = parse_jaas(text).options
    except JaasError as error:
        raise SecuritySettingsError(f"{name}: {error}") from None
    if "username" not in options or "password" not in options:
        raise SecuritySettingsError(f'{name}: needs username="…" and password="…"')
    return sasl_of(mechanism, options["username"], options["password"])


def sasl_of(mechanism: str, username: str, password: str) -> Sasl:
    if mechanism == "PLAIN":
        return SaslPlain(username, password)
    if mechanism in MECHANISMS:
        return SaslScram(username, password, mechanism)
    raise SecuritySettingsError(f"sasl.mechanism: {mechanism} is not offered; use {', '.join(OFFERED)}")
