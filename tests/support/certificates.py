"""Certificates for tests of TLS: one authority, and who it signs. Valid for a day."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Authority:
    """`certificate_file` is what both sides trust."""

    def __init__(self, directory: Path, name: str = "isthmus test authority") -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = self._signed(self._name, self._key.public_key(), authority=True)
        self.certificate_file = directory / "authority.pem"
        self.certificate_file.write_bytes(self._pem(self._certificate))

    @property
    def certificate(self) -> str:
        return self.certificate_file.read_text()

    def store(
        self,
        common_name: str,
        password: str | None = None,
        *,
        names: Sequence[str] = ("localhost", "127.0.0.1"),
        days: float = 1,
    ) -> Path:
        """A PEM store: a PKCS 8 key and its certificate, good for these names, so many days from now on."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "isthmus, tests"),
                x509.NameAttribute(NameOID.COMMON_NAME, common_name),
            ]
        )
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        ) + self._pem(self._signed(subject, key.public_key(), authority=False, names=names, days=days))
        path = self.directory / f"{common_name}{'-encrypted' if password else ''}.pem"
        path.write_bytes(text)
        return path

    def _signed(
        self,
        subject: x509.Name,
        public_key: ec.EllipticCurvePublicKey,
        *,
        authority: bool,
        names: Sequence[str] = (),
        days: float = 1,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * _DAY)
            .not_valid_after(now + days * _DAY)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if not authority:
            builder = builder.add_extension(x509.SubjectAlternativeName(map(_name, names)), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    @staticmethod
    def _pem(certificate: x509.Certificate) -> bytes:
        return certificate.public_bytes(serialization.Encoding.PEM)


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
