"""What every SASL mechanism does on the server's side: answer messages until a user is proven, or refuse.

`Refused.told` is what the client hears, `Refused.reason` what the log says; they differ where the truth would
tell a stranger which users exist. (Kafka: SaslServer, SaslException, SaslAuthenticationException.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Refused(Exception):
    """The client is not who it says. `told` None: the client hears no more than that."""

    def __init__(self, reason: str, told: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.told = told


class SaslServer(Protocol):
    """One exchange with one client."""

    @property
    def user(self) -> str | None:
        """The user's name once it is proven."""

    def answer(self, message: bytes) -> bytes:
        """What to send back. Raises Refused."""


NewServer = Callable[[], SaslServer]
