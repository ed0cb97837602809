"""SCRAM's formulas and messages (RFC 5802, RFC 7677), as a server and a client both need them.

Owns the mechanisms, the keys that follow from a password, and the texts of the three messages with Kafka's
limits (KIP-84: no channel binding; the password is UTF-8 as it is). Knows neither users nor connections.
(Kafka: `ScramFormatter`, `ScramMessages`.)
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

GS2_HEADER: Final = b"n,,"
_NAME = r"(?:[^=,\x00]|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2B\x2D-\x7E]+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^,\x00]+)*"
_BASE64 = r"[A-Za-z0-9/+]*={0,2}"
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>(?:m=[^,\x00]+,)?n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST = re.compile(
    rf"(?:m=[^,\x00]+,)?r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unproven>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>[^,]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class ScramError(Exception):
    """A message that is not one of SCRAM's, or a proof that does not hold. For logs, not for the peer."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """`number` is how AlterUserScramCredentials calls it (KIP-554)."""

    name: str
    number: int
    hash_name: str
    min_iterations: int = 4096

    def mac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self.hash_name)

    def hashed(self, text: bytes) -> bytes:
        return hashlib.new(self.hash_name, text).digest()

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Slow on purpose: milliseconds."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)

    def credential(self, salted_password: bytes, salt: bytes, iterations: int) -> Credential:
        stored_key = self.hashed(self.mac(salted_password, b"Client Key"))
        return Credential(salt, stored_key, self.mac(salted_password, b"Server Key"), iterations)


SCRAM_SHA_256: Final = Mechanism("SCRAM-SHA-256", 1, "sha256")
SCRAM_SHA_512: Final = Mechanism("SCRAM-SHA-512", 2, "sha512")
MECHANISMS: Final[Mapping[str, Mechanism]] = MappingProxyType(
    {mechanism.name: mechanism for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)}
)


@dataclass(frozen=True, slots=True)
class Credential:
    """What a server keeps of a password: it can check a proof with it, not make one."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """`bare` is what both sides sign."""

    user: str
    authorization_id: str
    nonce: str
    bare: bytes
    extensions: Mapping[str, str]

    @classmethod
    def parse(cls, message: bytes) -> ClientFirst:
        match = _match(_CLIENT_FIRST, message, "first message of a client")
        extensions = dict(item.split("=", 1) for item in match["extensions"].split(",") if item)
        authorization_id = from_sasl_name(match["authzid"] or "")
        bare = match["bare"].encode()
        return cls(from_sasl_name(match["name"]), authorization_id, match["nonce"], bare, extensions)


@dataclass(frozen=True, slots=True)
class ServerFirst:
    nonce: str
    salt: bytes
    iterations: int

    def message(self) -> bytes:
        return f"r={self.nonce},s={_text64(self.salt)},i={self.iterations}".encode()

    @classmethod
    def parse(cls, message: bytes) -> ServerFirst:
        match = _match(_SERVER_FIRST, message, "first message of a server")
        return cls(match["nonce"], _bytes64(match["salt"]), int(match["iterations"]))


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """`unproven` is the message without its proof: the part that is signed."""

    nonce: str
    unproven: bytes
    proof: bytes = field(repr=False)

    @classmethod
    def make(cls, nonce: str) -> ClientFinal:
        return cls(nonce, f"c={_text64(GS2_HEADER)},r={nonce}".encode(), b"")

    def proven(self, proof: bytes) -> bytes:
        return self.unproven + b",p=" + _text64(proof).encode()

    @classmethod
    def parse(cls, message: bytes) -> ClientFinal:
        match = _match(_CLIENT_FINAL, message, "final message of a client")
        return cls(match["nonce"], match["unproven"].encode(), _bytes64(match["proof"]))


def server_final(signature: bytes) -> bytes:
    return b"v=" + _text64(signature).encode()


def parse_server_final(message: bytes) -> bytes:
    """The server's signature. Raises ScramError with the server's own word for a refusal."""
    match = _match(_SERVER_FINAL, message, "final message of a server")
    if match["error"]:
        raise ScramError(f"the server refuses: {match['error']}")
    return _bytes64(match["signature"])


def signed_text(client_first_bare: bytes, server_first: bytes, unproven: bytes) -> bytes:
    """RFC 5802's AuthMessage."""
    return b",".join((client_first_bare, server_first, unproven))


def xor(one: bytes, other: bytes) -> bytes:
    """Raises ScramError unless both have one length."""
    if len(one) != len(other):
        raise ScramError(f"a proof of {len(one)} bytes, {len(other)} are expected")
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(len(one))


def new_nonce() -> str:
    return secrets.token_hex(20)


def to_sasl_name(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def from_sasl_name(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _match(pattern: re.Pattern[str], message: bytes, what: str) -> re.Match[str]:
    try:
        match = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise ScramError(f"not the {what}")
    return match


def _text64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ScramError(f"not base64: {error}") from error
