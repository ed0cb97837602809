"""`ClientSecurity` out of Kafka's client settings: security.protocol, sasl.*, ssl.* of a `client.properties`.

Errors name the setting and never repeat a secret. Settings of other kinds are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from protocol.client.jaas import JaasError, parse_jaas
from protocol.client.oauth import settings as oauth
from protocol.client.security import ClientSecurity, Sasl, SaslPlain, SaslScram, SecuritySettingsError
from protocol.client.tls import TlsSettings, client_context
from protocol.scram import MECHANISMS

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
BY_PASSWORD: Final = ("PLAIN", *MECHANISMS)
OFFERED: Final = (*BY_PASSWORD, *oauth.MECHANISMS)
_NAMES: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
    *oauth.TAKEN,
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    *("ssl." + name.replace("_", ".") for name in TlsSettings.__dataclass_fields__),
)
_PREFIXES: Final = ("security.protocol", "sasl.", "ssl.")
_WITHOUT_EFFECT: Final = re.compile(
    r"sasl\.kerberos\..+"
    r"|ssl\.(protocol|provider|cipher\.suites|client\.auth|engine\.factory\.class"
    r"|(key|trust)manager\.algorithm|secure\.random\.implementation)"
)
"""What Java's clients know besides (and a Connect worker: `ssl.client.auth`)."""


def without_effect(name: str, mechanism: str = "") -> bool:
    """Whether a setting for security is one of Java's that is not taken here, or not for this mechanism."""
    if mechanism.strip() not in oauth.MECHANISMS and name in oauth.TAKEN:
        return True
    return name in oauth.PASSED_OVER or _WITHOUT_EFFECT.fullmatch(name) is not None


def client_security(properties: Mapping[str, str]) -> ClientSecurity:
    """Raises SecuritySettingsError, TlsSettingsError.

    Name and password come from `sasl.jaas.config`, or from `sasl.username` and `sasl.password` as
    librdkafka has them. A name under `ssl.` or `sasl.` that nobody knows is an error: with a slip of the pen
    in it a store would not count, and others would be trusted.
    """
    for name in properties:
        if name.startswith(_PREFIXES) and name not in _NAMES and not without_effect(name):
            near = get_close_matches(name, _NAMES, n=1, cutoff=0.7)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SecuritySettingsError(f"{name}: is no setting of Kafka's clients{hint}")
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
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "")).strip()
    if not mechanism:
        raise SecuritySettingsError(
            f"sasl.mechanism: is not set, and Java's GSSAPI is not offered; use {', '.join(OFFERED)}"
        )
    if mechanism in oauth.MECHANISMS:
        return oauth.sasl_bearer(mechanism, properties)
    _offered(mechanism, OFFERED)
    if "sasl.jaas.config" in properties:
        return sasl_from_jaas(mechanism, properties["sasl.jaas.config"])
    missing = [name for name in ("sasl.username", "sasl.password") if name not in properties]
    if missing:
        raise SecuritySettingsError(f"{missing[0]}: not set, nor is sasl.jaas.config")
    return sasl_of(mechanism, properties["sasl.username"], properties["sasl.password"])


def sasl_from_jaas(mechanism: str, text: str, name: str = "sasl.jaas.config") -> Sasl:
    """`name` is the setting that errors speak of."""
    _offered(mechanism)
    try:
        options = parse_jaas(text).options
    except JaasError as error:
        raise SecuritySettingsError(f"{name}: {error}") from None
    if "username" not in options or "password" not in options:
        raise SecuritySettingsError(f'{name}: needs username="…" and password="…"')
    return sasl_of(mechanism, options["username"], options["password"])


def sasl_of(mechanism: str, username: str, password: str) -> Sasl:
    _offered(mechanism)
    if mechanism == "PLAIN":
        return SaslPlain(username, password)
    return SaslScram(username, password, mechanism)


def _offered(mechanism: str, offered: tuple[str, ...] = BY_PASSWORD) -> None:
    if mechanism not in offered:
        raise SecuritySettingsError(f"sasl.mechanism: {mechanism} is not offered; use {', '.join(offered)}")
