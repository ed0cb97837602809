"""Stores that Java's keytool makes, of an authority and a broker or client that it signed."""

import shutil
import subprocess
from pathlib import Path

import pytest

PASSWORD = "store-secret"
needs_keytool = pytest.mark.skipif(shutil.which("keytool") is None, reason="needs Java's keytool")
_QUICK = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")
LEGACY = ("-J-Dkeystore.pkcs12.legacy",)
"""As Java before 8u301 and 11.0.12 wrote PKCS12: RC2 and 3DES."""


class Keytool:
    """One authority, and stores below `directory`."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.directory = directory
        self._flags = flags
        directory.mkdir(parents=True, exist_ok=True)
        self.authority = directory / "authority.pem"
        self._generate("authority.p12", "authority", "CN=authority", "-ext", "bc:c")
        self._run("authority.p12", "-exportcert", "-rfc", "-alias", "authority", "-file", str(self.authority))

    def trust_store(self, name: str = "trust.jks", form: str = "PKCS12") -> Path:
        """Trusts the authority."""
        self._trust(name, form)
        return self.directory / name

    def in_jks(self, store: Path, name: str, key_password: str = PASSWORD) -> Path:
        """The same entries in Java's older format, the key with a password of its own."""
        of_source = ("-srckeystore", str(store), "-srcstorepass", PASSWORD)
        self._run(name, "-importkeystore", "-noprompt", *of_source, "-storetype", "JKS")
        if key_password != PASSWORD:
            self._run(name, "-keypasswd", "-alias", "me", "-keypass", PASSWORD, "-new", key_password)
        return self.directory / name

    def key_store(self, name: str, *, with_authority: bool = True) -> Path:
        """A key, its chain, and the authority once more under an alias of its own, as brokers often have."""
        self._generate(name, "me", "CN=localhost")
        request, answer = self.directory / "me.csr", self.directory / "me.pem"
        self._run(name, "-certreq", "-alias", "me", "-file", str(request))
        sign = ("-gencert", "-alias", "authority", "-rfc", "-ext", "san=dns:localhost,ip:127.0.0.1")
        self._run("authority.p12", *sign, "-infile", str(request), "-outfile", str(answer))
        self._trust(name)
        self._run(name, "-importcert", "-noprompt", "-alias", "me", "-file", str(answer))
        if not with_authority:
            self._run(name, "-delete", "-alias", "root")
        return self.directory / name

    def self_signed(self, name: str) -> Path:
        """A key that is its own authority."""
        self._generate(name, "me", "CN=localhost", "-ext", "san=dns:localhost,ip:127.0.0.1")
        return self.directory / name

    def _generate(self, store: str, alias: str, subject: str, *more: str) -> None:
        kind = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", "2")
        self._run(store, "-genkeypair", "-alias", alias, "-dname", subject, *kind, *more)

    def _trust(self, store: str, form: str = "PKCS12") -> None:
        what = ("-importcert", "-noprompt", "-alias", "root", "-file", str(self.authority))
        self._run(store, *what, "-storetype", form)

    def _run(self, store: str, *arguments: str) -> None:
        command = ["keytool", *_QUICK, *self._flags, *arguments, "-keystore", str(self.directory / store)]
        subprocess.run([*command, "-storepass", PASSWORD], check=True, capture_output=True, timeout=240)
