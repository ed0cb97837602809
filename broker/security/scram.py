"""SASL SCRAM on the server's side (RFC 5802, KIP-84): the client proves a password that is not sent.

What the client hears of a refusal is the same for an unknown user and for a wrong password. Delegation tokens
(`tokenauth=true`) are not offered. (Kafka: `ScramSaslServer`.)
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from broker.security.mechanisms import Refused
from protocol import scram
from protocol.scram import ClientFinal, ClientFirst, Credential, Mechanism, ScramError, ServerFirst

FindCredential = Callable[[str], Credential | None]


class ScramServer:
    """One exchange of two messages. `find` gives a user's credential of this mechanism."""

    def __init__(
        self, mechanism: Mechanism, find: FindCredential, new_nonce: Callable[[], str] = scram.new_nonce
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._new_nonce = new_nonce
        self._first: ClientFirst | None = None
        self._challenge: ServerFirst | None = None
        self._credential: Credential | None = None
        self.user: str | None = None

    def answer(self, message: bytes) -> bytes:
        if self.user is not None:
            raise Refused("a message after the exchange has ended")
        try:
            return self._final(message) if self._challenge is not None else self._begin(message)
        except ScramError as error:
            raise Refused(f"Authentication failed: {error}") from error

    def _begin(self, message: bytes) -> bytes:
        first = ClientFirst.parse(message)
        if first.extensions.get("tokenauth") == "true":
            raise Refused("delegation tokens are not offered")
        credential = self._find(first.user)
        if credential is None:
            raise Refused(f"Authentication failed: there is no {self._mechanism.name} user {first.user!r}")
        if first.authorization_id not in ("", first.user):
            text = (
                "Authentication failed: Client requested an authorization id that is different from username"
            )
            raise Refused(text, text)
        if credential.iterations < self._mechanism.min_iterations:
            raise Refused(f"user {first.user!r} has {credential.iterations} iterations, which is too few")
        self._first, self._credential = first, credential
        self._challenge = ServerFirst(first.nonce + self._new_nonce(), credential.salt, credential.iterations)
        return self._challenge.message()

    def _final(self, message: bytes) -> bytes:
        first, challenge, credential = self._first, self._challenge, self._credential
        assert first is not None
        assert challenge is not None
        assert credential is not None
        final = ClientFinal.parse(message)
        if final.nonce != challenge.nonce:
            raise Refused("Authentication failed: the nonce is not the one of this exchange")
        mechanism = self._mechanism
        text = scram.signed_text(first.bare, challenge.message(), final.unproven)
        key = scram.xor(final.proof, mechanism.mac(credential.stored_key, text))
        if not hmac.compare_digest(mechanism.hashed(key), credential.stored_key):
            raise Refused(f"Authentication failed: wrong password of user {first.user!r}")
        self.user = first.user
        return scram.server_final(mechanism.mac(credential.server_key, text))
