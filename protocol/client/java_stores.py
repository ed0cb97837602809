"""Key and trust stores as Java's keytool writes them (PKCS12, the default since Java 9), as PEM texts.

Told by what is in a file, not by its name or by `JKS` in a setting, as Java does (`keystore.type.compat`).
The older form of that name has a format of its own, which is refused with the command that converts it. A key
leaves here encrypted only: Python's ssl reads keys from files alone.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

_OLD: Final = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
_DER_SEQUENCE: Final = b"\x30"
_CONVERT: Final = (
    "convert it with `keytool -importkeystore -srckeystore OLD -destkeystore NEW.p12 -deststoretype PKCS12`"
)


class StoreError(ValueError):
    """What is wrong with a store; never repeats a secret."""


class KeyTexts(NamedTuple):
    """A key, encrypted, with its chain from its own certificate on; and what the key is encrypted with."""

    texts: str
    password: str


def is_pkcs12(content: bytes) -> bool:
    """By its first byte: PEM and the older forms begin otherwise."""
    return content.startswith(_DER_SEQUENCE)


def key_texts(content: bytes, password: str | None) -> KeyTexts:
    """Raises StoreError."""
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    store = _opened(content, password)
    if store.key is None or store.cert is None:
        raise StoreError("holds no private key with its certificate")
    made = secrets.token_urlsafe(32)
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(made.encode()))
    others = [one.certificate for one in store.additional_certs]
    return KeyTexts(key.decode() + _pem(_chain(store.cert.certificate, others)), made)


def trusted_texts(content: bytes, password: str | None) -> str:
    """What Java would trust: all certificates of a store without a key; of one with a key its certificate,
    and those under an alias of their own. Of the key's chain keytool writes subjects in the alias's place.
    """
    store = _opened(content, password)
    if store.cert is None:
        return _pem([one.certificate for one in store.additional_certs])
    named = [
        one.certificate
        for one in store.additional_certs
        if one.friendly_name and b"=" not in one.friendly_name
    ]
    return _pem([store.cert.certificate, *named])


def _opened(content: bytes, password: str | None) -> PKCS12KeyAndCertificates:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    old = _OLD.get(content[:4])
    if old is not None:
        raise StoreError(f"is a store in Java's old format {old}, which is not read here; {_CONVERT}")
    if not is_pkcs12(content):
        raise StoreError("is no PKCS12 store")
    try:
        return load_pkcs12(content, password.encode() if password is not None else None)
    except UnsupportedAlgorithm as error:
        raise StoreError(f"cannot be read: {error}; {_CONVERT}") from None
    except ValueError:
        wrong = "wrong password" if password is not None else "needs a password"
        raise StoreError(f"cannot be opened: {wrong}, or no PKCS12 store") from None


def _chain(leaf: Certificate, others: list[Certificate]) -> list[Certificate]:
    """As long as an issuer is there; a store may hold certificates that have nothing to do with the key."""
    chain, left = [leaf], [one for one in others if one != leaf]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((one for one in left if one.subject == chain[-1].issuer), None)
        if issuer is None:
            break
        chain.append(issuer)
        left.remove(issuer)
    return chain


def _pem(certificates: list[Certificate]) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return "".join(one.public_bytes(Encoding.PEM).decode() for one in dict.fromkeys(certificates))
