"""Key and trust stores as Java's keytool writes them (PKCS12, since Java 9, and JKS), as PEM texts.

Told by what is in a file, not by its name or by the type in a setting, as Java does (`keystore.type.compat`).
JCEKS is refused with the command that converts it. A key leaves here encrypted only: Python's ssl reads keys
from files alone.
"""

from __future__ import annotations

import secrets
from ssl import DER_cert_to_PEM_cert
from typing import TYPE_CHECKING, Final, NamedTuple

from protocol.client import jks
from protocol.client.jks import StoreError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

_JCEKS: Final = b"\xce\xce\xce\xce"
_DER_SEQUENCE: Final = b"\x30"
_NO_KEY: Final = "holds no private key with its certificate"
_CONVERT: Final = (
    "convert it with `keytool -importkeystore -srckeystore OLD -destkeystore NEW.p12 -deststoretype PKCS12`"
)


class KeyTexts(NamedTuple):
    """A key, encrypted, with its chain from its own certificate on; and what the key is encrypted with."""

    texts: str
    password: str


def is_store(content: bytes) -> bool:
    """Whether it is in one of Java's forms, by its first bytes: PEM begins otherwise."""
    return content.startswith((_DER_SEQUENCE, jks.MAGIC, _JCEKS))


def key_texts(content: bytes, password: str | None, key_password: str | None = None) -> KeyTexts:
    """`key_password`: of a key in JKS that has another one than its store. Raises StoreError."""
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    if content.startswith(jks.MAGIC):
        key, chain = _key_of_jks(content, password, key_password)
    else:
        key, chain = _key_of_pkcs12(content, password)
    made = secrets.token_urlsafe(32)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(made.encode()))
    return KeyTexts(text.decode() + chain, made)


def trusted_texts(content: bytes, password: str | None) -> str:
    """What Java would trust: all certificates of a store without a key; of one with a key its certificate,
    and those under an alias of their own. Of the key's chain keytool writes subjects in the alias's place.
    """
    if content.startswith(jks.MAGIC):
        return _trusted_of_jks(content, password)
    store = _opened(content, password)
    if store.cert is None:
        return _pem([one.certificate for one in store.additional_certs])
    named = [
        one.certificate
        for one in store.additional_certs
        if one.friendly_name and b"=" not in one.friendly_name
    ]
    return _pem([store.cert.certificate, *named])


def _key_of_pkcs12(content: bytes, password: str | None) -> tuple[PrivateKeyTypes, str]:
    store = _opened(content, password)
    if store.key is None or store.cert is None:
        raise StoreError(_NO_KEY)
    others = [one.certificate for one in store.additional_certs]
    return store.key, _pem(_chain(store.cert.certificate, others))


def _key_of_jks(
    content: bytes, password: str | None, key_password: str | None
) -> tuple[PrivateKeyTypes, str]:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    keys = jks.read_jks(content, password).keys
    if not keys:
        raise StoreError(_NO_KEY)
    protected, chain = keys[0]
    secret = key_password if key_password is not None else password
    if secret is None:
        raise StoreError("cannot be opened: needs a password")
    plain = jks.private_key(protected, secret)
    try:
        return load_der_private_key(plain, None), _pem_of_der(chain)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise StoreError(f"holds a key that cannot be used: {error}") from None


def _trusted_of_jks(content: bytes, password: str | None) -> str:
    store = jks.read_jks(content, password)
    return _pem_of_der([*(chain[0] for _, chain in store.keys if chain), *store.trusted])


def _opened(content: bytes, password: str | None) -> PKCS12KeyAndCertificates:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    if content.startswith(_JCEKS):
        raise StoreError(f"is a store in Java's format JCEKS, which is not read here; {_CONVERT}")
    if not content.startswith(_DER_SEQUENCE):
        raise StoreError("is neither a PKCS12 nor a JKS store")
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


def _pem_of_der(certificates: list[bytes]) -> str:
    """They are not looked into: stores of Java's hold some that OpenSSL takes and `cryptography` does not."""
    return "".join(DER_cert_to_PEM_cert(one) for one in dict.fromkeys(certificates))
