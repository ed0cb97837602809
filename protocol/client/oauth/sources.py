"""Where tokens come from beside a token endpoint: a file, a setting, nowhere (unsecured).

A source is called with the broker's host, blocks, and raises TokenError. No message repeats what a file
holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from protocol.client.errors import TokenError
from protocol.client.oauth.bearer import NotATokenError, Token, unsecured

Source = Callable[[str], Token]


@dataclass(frozen=True, slots=True)
class FileToken:
    """A file that something else keeps up to date: it is read each time (KIP-768)."""

    path: str

    def __call__(self, host: str) -> Token:
        text = read_secret(self.path)
        try:
            return Token.read(text)
        except NotATokenError as error:
            raise TokenError(
                f"no token: {self.path} {error}", "look at what writes it: the token alone has to stand there"
            ) from None


@dataclass(frozen=True, slots=True)
class FixedToken:
    """One that stands in the settings."""

    token: Token

    def __call__(self, host: str) -> Token:
        return self.token


@dataclass(frozen=True, slots=True)
class UnsecuredToken:
    """Made here and signed by nobody."""

    claims: Mapping[str, Any] = field(repr=False)
    lifetime_s: float = 3600.0

    def __call__(self, host: str) -> Token:
        now = time.time()
        return Token.read(unsecured({"exp": now + self.lifetime_s, "iat": now, **self.claims}))


def read_secret(path: str) -> str:
    """The file's text without blanks around it. Raises TokenError."""
    try:
        with open(path, encoding="ascii") as file:
            return file.read(1 << 20).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not text in ASCII"
        raise TokenError(
            f"no token: {path}: {why}", "look at the path, its rights, and what writes it"
        ) from None
