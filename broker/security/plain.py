"""SASL PLAIN (RFC 4616, KIP-43): name and password as they are, compared with the listener's settings.

Users are options `user_<name>="<password>"` of the mechanism's `sasl.jaas.config`.
(Kafka: `PlainSaslServer`.)
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from broker.security.mechanisms import Refused

MECHANISM: Final = "PLAIN"
_USER_OPTION: Final = "user_"


def users_of(options: Mapping[str, str]) -> dict[str, str]:
    """Passwords by user, out of a login module's options."""
    return {
        name.removeprefix(_USER_OPTION): password
        for name, password in options.items()
        if name.startswith(_USER_OPTION)
    }


class PlainServer:
    """One exchange; there is one message in it."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.user: str | None = None

    def answer(self, message: bytes) -> bytes:
        try:
            authorization_id, user, password = message.decode().split("\0")
        except ValueError:  # that of decoding, too
            raise _told("the message is not [authorization id] NUL user NUL password") from None
        if not user:
            raise _told("username not specified")
        if not password:
            raise _told("password not specified")
        expected = self._users.get(user)
        same = hmac.compare_digest(password.encode(), (expected or "").encode())
        if expected is None or not same:
            raise _told("Invalid username or password")
        if authorization_id not in ("", user):
            raise _told("Client requested an authorization id that is different from username")
        self.user = user
        return b""


def _told(reason: str) -> Refused:
    text = f"Authentication failed: {reason}"
    return Refused(text, text)
