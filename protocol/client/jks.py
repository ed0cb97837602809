"""Java's older format of key and trust stores, JKS, which keytool wrote until Java 8.

Owns the format only: entries by alias, and keys as their store protects them (`sun.security.provider`:
JavaKeyStore, KeyProtector). Who is trusted is `java_stores`' to say.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

MAGIC: Final = b"\xfe\xed\xfe\xed"
_VERSIONS: Final = (1, 2)
_KEY, _CERTIFICATE = 1, 2
_SALT: Final = b"Mighty Aphrodite"
_DIGEST: Final = 20
_PROTECTED_BY_JAVA: Final = bytes.fromhex("060a2b060104012a02110101")
"""The object identifier 1.3.6.1.4.1.42.2.17.1.1 in DER."""


class StoreError(ValueError):
    """What is wrong with a store; never repeats a secret."""


@dataclass(slots=True)
class Jks:
    """`keys`: each as it is protected, and its chain from its own certificate on. All certificates in DER."""

    keys: list[tuple[bytes, list[bytes]]] = field(default_factory=list)
    trusted: list[bytes] = field(default_factory=list)


def read_jks(content: bytes, password: str | None) -> Jks:
    """Without a password nothing says whether somebody has changed it, as in Java. Raises StoreError."""
    body, digest = content[:-_DIGEST], content[-_DIGEST:]
    if password is not None:
        made = hashlib.sha1(_password(password) + _SALT + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(made, digest):
            raise StoreError("cannot be opened: wrong password, or the file is damaged")
    reader = _Reader(body, len(MAGIC))
    version = reader.number(4)
    if version not in _VERSIONS:
        raise StoreError(f"is a JKS store of version {version}, which is not known")
    found = Jks()
    for _ in range(reader.number(4)):
        kind = reader.number(4)
        reader.take(reader.number(2))  # alias
        reader.take(8)  # when it was made
        if kind == _KEY:
            key = reader.take(reader.number(4))
            found.keys.append((key, [_certificate(reader, version) for _ in range(reader.number(4))]))
        elif kind == _CERTIFICATE:
            found.trusted.append(_certificate(reader, version))
        else:
            raise StoreError("cannot be read: the file is damaged")
    return found


def private_key(protected: bytes, password: str) -> bytes:
    """The key in DER (PKCS8). Raises StoreError."""
    outer = _Reader(_Reader(protected).element(0x30))
    if not outer.element(0x30).startswith(_PROTECTED_BY_JAVA):
        raise StoreError("holds a key that is protected in a way that is not known")
    sealed = outer.element(0x04)
    salt, hidden, digest = sealed[:_DIGEST], sealed[_DIGEST:-_DIGEST], sealed[-_DIGEST:]
    secret = _password(password)
    stream, last = bytearray(), salt
    while len(stream) < len(hidden):
        last = hashlib.sha1(secret + last, usedforsecurity=False).digest()
        stream += last
    key = bytes(one ^ other for one, other in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key, usedforsecurity=False).digest(), digest):
        raise StoreError("holds a key with another password: set ssl.key.password")
    return key


def _password(text: str) -> bytes:
    return text.encode("utf-16-be")


def _certificate(reader: _Reader, version: int) -> bytes:
    if version > 1:
        reader.take(reader.number(2))  # X.509
    return reader.take(reader.number(4))


class _Reader:
    """Numbers, texts and DER elements one after the other. Raises StoreError where the bytes end."""

    def __init__(self, content: bytes, at: int = 0) -> None:
        self._content = content
        self._at = at

    def take(self, count: int) -> bytes:
        taken = self._content[self._at : self._at + count]
        if len(taken) < count:
            raise StoreError("cannot be read: the file is damaged")
        self._at += count
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def element(self, tag: int) -> bytes:
        """The content of the next DER element, which has to be of this kind."""
        if self.number(1) != tag:
            raise StoreError("holds a key that cannot be read")
        length = self.number(1)
        return self.take(self.number(length & 0x7F) if length & 0x80 else length)
