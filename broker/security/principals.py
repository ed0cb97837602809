"""Who a client is by its certificate: `User:` and the subject's name, as Java writes it (RFC 2253).

Owns only the default of `ssl.principal.mapping.rules`.
(Kafka: `DefaultKafkaPrincipalBuilder`, `X500Principal`.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_SHORT: Final[Mapping[str, str]] = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_SPECIAL: Final = ',+"\\<>;'


def user_principal(user: str) -> str:
    return f"User:{user}"


def certificate_principal(certificate: Mapping[str, Any]) -> str:
    """`certificate` is what `getpeercert` gives: the subject's parts from the country down."""
    parts = [
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in reversed(certificate.get("subject", ()))
    ]
    return user_principal(",".join(parts))


def _escaped(value: str) -> str:
    text = "".join("\\" + char if char in _SPECIAL else char for char in value)
    if text[:1] in ("#", " "):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and len(text) > 1 else text
