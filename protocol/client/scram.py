"""The client's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802): a password is proven, never sent.

Pure; deriving the key takes milliseconds, so it is a step of its own that a caller may run in a thread.
"""

from __future__ import annotations

import hmac

from protocol import scram
from protocol.scram import ClientFinal, Mechanism, ScramError, ServerFirst

# A server may not ask for more work than this; Kafka's own limit for what it stores is 16,384.
_MOST_ITERATIONS = 1_000_000


class ScramClient:
    """One exchange: `first()`, `final(answer)`, `verify(answer)`. Raises ScramError."""

    def __init__(self, mechanism: Mechanism, user: str, password: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = scram.new_nonce()
        self._bare = f"n={scram.to_sasl_name(user)},r={self._nonce}".encode()
        self._expected = b""

    def first(self) -> bytes:
        return scram.GS2_HEADER + self._bare

    def final(self, server_first: bytes) -> bytes:
        mechanism, challenge = self._mechanism, ServerFirst.parse(server_first)
        if not challenge.nonce.startswith(self._nonce) or challenge.nonce == self._nonce:
            raise ScramError("the server's nonce does not continue ours")
        if not mechanism.min_iterations <= challenge.iterations <= _MOST_ITERATIONS:
            raise ScramError(f"the server asks for {challenge.iterations} iterations")
        salted = mechanism.salted_password(self._password, challenge.salt, challenge.iterations)
        final = ClientFinal.make(challenge.nonce)
        text = scram.signed_text(self._bare, server_first, final.unproven)
        key = mechanism.mac(salted, b"Client Key")
        proof = scram.xor(key, mechanism.mac(mechanism.hashed(key), text))
        self._expected = mechanism.mac(mechanism.mac(salted, b"Server Key"), text)
        return final.proven(proof)

    def verify(self, server_final: bytes) -> None:
        """That the server knows the user's keys as well."""
        if not hmac.compare_digest(scram.parse_server_final(server_final), self._expected):
            raise ScramError("the server does not prove that it knows the user")
