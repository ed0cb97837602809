"""TLS contexts out of Kafka's `ssl.*` settings with PEM stores (KIP-651), for clients and for listeners.

A store is a file (`….location`) or the texts themselves; texts may be one line, as in properties files.
Java's own formats (JKS, PKCS12) are refused with the command that converts them. Passwords and keys never
show in a repr or an error. (Kafka: `DefaultSslEngineFactory`.)
"""

from __future__ import annotations

import re
import ssl as tls
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

PEM: Final = "PEM"
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_VERSIONS: Final[Mapping[str, tls.TLSVersion]] = {
    "TLSv1.2": tls.TLSVersion.TLSv1_2,
    "TLSv1.3": tls.TLSVersion.TLSv1_3,
}
_CONVERT: Final = (
    "only PEM is read here; convert with `openssl pkcs12 -in STORE.p12 -out store.pem -nodes`"
    " (JKS: `keytool -importkeystore` to PKCS12 first), name that file and set this to PEM"
)
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


def _load_key(context: tls.SSLContext, settings: TlsSettings) -> bool:
    """Whether there is one."""
    chain, key = settings.keystore_certificate_chain, settings.keystore_key
    if (chain is None) != (key is None):
        raise TlsSettingsError(
            "ssl.keystore.key and ssl.keystore.certificate.chain: one is set without the other"
        )
    texts = _store(
        "keystore",
        settings.keystore_type,
        settings.keystore_location,
        settings.keystore_password,
        None if key is None or chain is None else key + chain,
    )
    if texts is None:
        return False
    name = "ssl.keystore.location" if key is None else "ssl.keystore.key"
    blocks = _blocks(name, texts)
    if not any("KEY" in kind for kind, _ in blocks) or not any(kind == "CERTIFICATE" for kind, _ in blocks):
        raise TlsSettingsError(f"{name}: needs a private key and its certificate in PEM")
    encrypted = any(kind == "ENCRYPTED PRIVATE KEY" for kind, _ in blocks)
    if encrypted and settings.key_password is None:
        raise TlsSettingsError(f"{name}: the key is encrypted; set ssl.key.password")
    with tempfile.TemporaryDirectory(prefix="isthmus-tls-") as directory:  # readable by this user alone
        path = Path(directory, "store.pem")
        path.write_text("".join(text for _, text in blocks))
        try:
            context.load_cert_chain(path, password=settings.key_password or "")
        except (tls.SSLError, ValueError) as error:
            raise TlsSettingsError(f"{name}: key and certificate cannot be used: {_reason(error)}") from None
    return True


def _load_trusted(context: tls.SSLContext, settings: TlsSettings) -> bool:
    texts = _store(
        "truststore",
        settings.truststore_type,
        settings.truststore_location,
        settings.truststore_password,
        settings.truststore_certificates,
    )
    if texts is None:
        return False
    name = "ssl.truststore.location" if settings.truststore_location else "ssl.truststore.certificates"
    certificates = [text for kind, text in _blocks(name, texts) if kind == "CERTIFICATE"]
    if not certificates:
        raise TlsSettingsError(f"{name}: holds no certificate in PEM")
    try:
        context.load_verify_locations(cadata="".join(certificates))
    except tls.SSLError as error:
        raise TlsSettingsError(f"{name}: certificates cannot be used: {_reason(error)}") from None
    return True


def _store(kind: str, form: str, location: str | None, password: str | None, texts: str | None) -> str | None:
    """The texts of a store, None when it is not set."""
    if location is None and texts is None:
        return None
    if form.upper() != PEM:
        raise TlsSettingsError(f"ssl.{kind}.type: {form}: {_CONVERT}")
    if location is not None and texts is not None:
        raise TlsSettingsError(f"ssl.{kind}.location: is set and so are the texts; one of them is enough")
    if password is not None:
        raise TlsSettingsError(f"ssl.{kind}.password: PEM has none; a key may have ssl.key.password")
    if texts is not None:
        return texts
    assert location is not None
    try:
        return Path(location).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise TlsSettingsError(f"ssl.{kind}.location: {location}: {reason}") from None


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
