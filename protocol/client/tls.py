"""TLS contexts out of Kafka's `ssl.*` settings, for clients and for listeners.

A store is a file (`….location`), in PEM (KIP-651) or as Java's keytool writes it (`java_stores`), or PEM
texts themselves; texts may be one line, as in properties files. Passwords and keys never show in a repr or an
error. (Kafka: `DefaultSslEngineFactory`.)
"""

from __future__ import annotations

import re
import ssl as tls
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Self

from protocol.client.java_stores import is_store, key_texts, trusted_texts
from protocol.client.jks import StoreError

PEM: Final = "PEM"
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_VERSIONS: Final[Mapping[str, tls.TLSVersion]] = {
    "TLSv1.2": tls.TLSVersion.TLSv1_2,
    "TLSv1.3": tls.TLSVersion.TLSv1_3,
}
JAVA: Final = ("PKCS12", "JKS")
"""Types of stores in Java's form: both names mean what the file is."""
DEFAULT_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


class TlsSettingsError(ValueError):
    """A setting is wrong; the message begins with its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Kafka's settings with `_` for `.`, without `ssl.`."""

    keystore_type: str = "JKS"
    keystore_location: str | None = None
    keystore_certificate_chain: str | None = None
    keystore_key: str | None = field(default=None, repr=False)
    keystore_password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    truststore_type: str = "JKS"
    truststore_location: str | None = None
    truststore_certificates: str | None = None
    truststore_password: str | None = field(default=None, repr=False)
    enabled_protocols: tuple[str, ...] = DEFAULT_VERSIONS

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Out of texts under Kafka's names; others are passed over."""
        values: dict[str, object] = {
            name: properties[setting]
            for name in cls.__dataclass_fields__
            if (setting := "ssl." + name.replace("_", ".")) in properties
        }
        versions = properties.get("ssl.enabled.protocols")
        if versions is not None:
            values["enabled_protocols"] = tuple(item.strip() for item in versions.split(","))
        return cls(**values)  # type: ignore[arg-type]


def server_context(settings: TlsSettings, client_auth: str = "none") -> tls.SSLContext:
    """`client_auth`: none, requested or required. Raises TlsSettingsError."""
    context = tls.SSLContext(tls.PROTOCOL_TLS_SERVER)
    _limit_versions(context, settings)
    if not _load_key(context, settings):
        raise TlsSettingsError(
            "ssl.keystore.location: a TLS listener needs a key and a certificate: set this, or"
            " ssl.keystore.key and ssl.keystore.certificate.chain, and ssl.keystore.type=PEM"
        )
    context.verify_mode = {
        "none": tls.CERT_NONE,
        "requested": tls.CERT_OPTIONAL,
        "required": tls.CERT_REQUIRED,
    }[client_auth]
    if not _load_trusted(context, settings) and client_auth != "none":
        context.load_default_certs(tls.Purpose.CLIENT_AUTH)
    return context


def client_context(settings: TlsSettings, *, check_host: bool = True) -> tls.SSLContext:
    """Trusts the system's authorities where no trust store is set. Raises TlsSettingsError."""
    context = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
    _limit_versions(context, settings)
    context.check_hostname = check_host
    _load_key(context, settings)
    if not _load_trusted(context, settings):
        context.load_default_certs()
    return context


def _limit_versions(context: tls.SSLContext, settings: TlsSettings) -> None:
    wrong = [name for name in settings.enabled_protocols if name not in _VERSIONS]
    if wrong or not settings.enabled_protocols:
        raise TlsSettingsError(
            f"ssl.enabled.protocols: {', '.join(wrong) or 'nothing'} is not among {', '.join(_VERSIONS)}"
        )
    versions = [_VERSIONS[name] for name in settings.enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)


class KeyStore(NamedTuple):
    """A private key and its chain in PEM. `name`: of the setting that errors speak of."""

    name: str
    key: str
    chain: str
    password: str | None


def key_store(settings: TlsSettings) -> KeyStore | None:
    """None when there is none. Raises TlsSettingsError."""
    chain, key = settings.keystore_certificate_chain, settings.keystore_key
    if (chain is None) != (key is None):
        raise TlsSettingsError(
            "ssl.keystore.key and ssl.keystore.certificate.chain: one is set without the other"
        )
    both = None if key is None or chain is None else key + chain
    texts = _store(
        "keystore",
        settings.keystore_type,
        settings.keystore_location,
        settings.keystore_password,
        both,
    )
    if texts is None:
        return None
    name = "ssl.keystore.location" if both is None else "ssl.keystore.key"
    password = settings.key_password
    if isinstance(texts, bytes):
        try:
            texts, password = key_texts(texts, settings.keystore_password, settings.key_password)
        except StoreError as error:
            raise TlsSettingsError(f"{name}: {settings.keystore_location}: {error}") from None
    blocks = _blocks(name, texts)
    keys = "".join(text for kind, text in blocks if "KEY" in kind)
    certificates = "".join(text for kind, text in blocks if kind == "CERTIFICATE")
    if not keys or not certificates:
        raise TlsSettingsError(f"{name}: needs a private key and its certificate in PEM")
    if any(kind == "ENCRYPTED PRIVATE KEY" for kind, _ in blocks) and password is None:
        raise TlsSettingsError(f"{name}: the key is encrypted; set ssl.key.password")
    return KeyStore(name, keys, certificates, password)


def trusted(settings: TlsSettings) -> tuple[str, str] | None:
    """Certificates in PEM, and the setting that they come from; None when there is none. Raises
    TlsSettingsError."""
    texts = _store(
        "truststore",
        settings.truststore_type,
        settings.truststore_location,
        settings.truststore_password,
        settings.truststore_certificates,
    )
    if texts is None:
        return None
    name = "ssl.truststore.location" if settings.truststore_location else "ssl.truststore.certificates"
    if isinstance(texts, bytes):
        try:
            certificates = trusted_texts(texts, settings.truststore_password)
        except StoreError as error:
            raise TlsSettingsError(f"{name}: {settings.truststore_location}: {error}") from None
        if not certificates:
            raise TlsSettingsError(f"{name}: {settings.truststore_location}: holds no certificate")
        return certificates, name
    certificates = "".join(text for kind, text in _blocks(name, texts) if kind == "CERTIFICATE")
    if not certificates:
        raise TlsSettingsError(f"{name}: holds no certificate in PEM")
    return certificates, name


def _load_key(context: tls.SSLContext, settings: TlsSettings) -> bool:
    """Whether there is one."""
    store = key_store(settings)
    if store is None:
        return False
    with tempfile.TemporaryDirectory(prefix="isthmus-tls-") as directory:  # readable by this user alone
        path = Path(directory, "store.pem")
        path.write_text(store.key + store.chain)
        try:
            context.load_cert_chain(path, password=store.password or "")
        except (tls.SSLError, ValueError) as error:
            hint = "; the key is encrypted: look at ssl.key.password" if "ENCRYPTED" in store.key else ""
            raise TlsSettingsError(
                f"{store.name}: key and certificate cannot be used: {_reason(error)}{hint}"
            ) from None
    return True


def _load_trusted(context: tls.SSLContext, settings: TlsSettings) -> bool:
    found = trusted(settings)
    if found is None:
        return False
    certificates, name = found
    try:
        context.load_verify_locations(cadata=certificates)
    except tls.SSLError as error:
        raise TlsSettingsError(f"{name}: certificates cannot be used: {_reason(error)}") from None
    return True


def _store(
    kind: str, form: str, location: str | None, password: str | None, texts: str | None
) -> str | bytes | None:
    """PEM texts, the content of a store in Java's form, or None when it is not set."""
    if location is None and texts is None:
        return None
    if form.upper() not in (PEM, *JAVA):
        raise TlsSettingsError(f"ssl.{kind}.type: {form}: is not among {', '.join((PEM, *JAVA))}")
    if location is not None and texts is not None:
        raise TlsSettingsError(f"ssl.{kind}.location: is set and so are the texts; one of them is enough")
    if texts is not None:
        if form.upper() != PEM:
            raise TlsSettingsError(f"ssl.{kind}.type: {form}: texts are in PEM, set this to PEM")
        _no_password(kind, password)
        return texts
    assert location is not None
    return _read(kind, form, location, password)


def _read(kind: str, form: str, location: str, password: str | None) -> str | bytes:
    try:
        content = Path(location).read_bytes()
    except OSError as error:
        raise TlsSettingsError(f"ssl.{kind}.location: {location}: {error.strerror}") from None
    if form.upper() != PEM:
        if b"-----BEGIN " in content:
            raise TlsSettingsError(f"ssl.{kind}.type: {form}: {location} is PEM, set this to PEM")
        return content
    if is_store(content):
        raise TlsSettingsError(
            f"ssl.{kind}.type: PEM: {location} is no text; a store of keytool's is PKCS12 or JKS, and has"
            f" a password (ssl.{kind}.password)"
        )
    _no_password(kind, password)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise TlsSettingsError(f"ssl.{kind}.location: {location}: is not text") from None


def _no_password(kind: str, password: str | None) -> None:
    if password is not None:
        raise TlsSettingsError(f"ssl.{kind}.password: PEM has none; a key may have ssl.key.password")


def _blocks(name: str, texts: str) -> list[tuple[str, str]]:
    """(kind, text with lines as OpenSSL wants them) of each PEM block."""
    found = []
    for match in _BLOCK.finditer(texts.replace("\\n", "\n")):
        body = "".join(match[2].split())
        lines = "\n".join(body[start : start + 64] for start in range(0, len(body), 64))
        found.append((match[1], f"-----BEGIN {match[1]}-----\n{lines}\n-----END {match[1]}-----\n"))
    if not found:
        raise TlsSettingsError(f"{name}: is not PEM")
    return found


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)
