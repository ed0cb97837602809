"""SASL OAUTHBEARER as a client speaks it (RFC 7628, KIP-255), and what a token says of itself (RFC 7519).

Pure: knows nothing of where tokens come from. A token is read, never verified: that is the broker's to do.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

MECHANISM: Final = "OAUTHBEARER"
ACKNOWLEDGED: Final = b"\x01"
"""The client's answer to a refusal, after which the broker ends the exchange."""

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_EXTENSION = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7E \t\r\n]+")

Extensions = tuple[tuple[str, str], ...]


class NotATokenError(ValueError):
    """The text is no token; the message does not repeat it."""


@dataclass(frozen=True, slots=True)
class Token:
    """`begins` and `ends` are seconds since 1970, None where they are not known."""

    text: str = field(repr=False)
    subject: str = ""
    begins: float | None = None
    ends: float | None = None

    @classmethod
    def read(cls, text: str) -> Self:
        """Surrounding blanks do not count. Raises NotATokenError."""
        text = text.strip()
        if not text:
            raise NotATokenError("is empty")
        if _TOKEN.fullmatch(text) is None:
            raise NotATokenError("is no token: it has characters that tokens cannot have")
        claims = _claims(text)
        subject = claims.get("sub")
        return cls(
            text, subject if isinstance(subject, str) else "", _time(claims, "iat"), _time(claims, "exp")
        )


def first_message(token: Token, extensions: Extensions) -> bytes:
    pairs = (("auth", f"Bearer {token.text}"), *extensions)
    return ("n,,\x01" + "".join(f"{name}={value}\x01" for name, value in pairs) + "\x01").encode()


def refusal(challenge: bytes) -> str:
    """Why the broker takes no token, out of what it sends instead of nothing."""
    try:
        found = json.loads(challenge)
    except ValueError:
        return "invalid_token"
    status = found.get("status") if isinstance(found, dict) else None
    return status if isinstance(status, str) else "invalid_token"


def extensions_of(options: Mapping[str, str], prefix: str) -> Extensions:
    """Those among a login module's options. Raises ValueError."""
    found = tuple(
        (name.removeprefix(prefix), value) for name, value in options.items() if name.startswith(prefix)
    )
    for name, value in found:
        if _EXTENSION.fullmatch(name) is None or name == "auth":
            raise ValueError(f"{prefix}{name}: the name of an extension has letters only, and is not auth")
        if _VALUE.fullmatch(value) is None:
            raise ValueError(f"{prefix}{name}: has to have a value, in ASCII")
    return found


def unsecured(claims: Mapping[str, Any]) -> str:
    """A token that nobody signed, for brokers of a development environment (KIP-255)."""
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def listed(value: str) -> list[str]:
    """Kafka's lists in options: the first character stands between the items."""
    return list(filter(None, value[1:].split(value[0]))) if value else []


def _encoded(part: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def _claims(text: str) -> dict[str, Any]:
    """Nothing where the token is not a JWT: what others hold is known to their issuer alone."""
    parts = text.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value)
