"""Where REST of links listens and whom it lets in: options of `isthmus replicate`, or `rest` of a topology.

An option counts before the file. Ends the command where others could pause links.
"""

from __future__ import annotations

import ssl as tls
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.output import USAGE, fail


@dataclass(frozen=True)
class RestAccess:
    """`port` None: there is no REST."""

    port: int | None = None
    host: str = "127.0.0.1"
    token: str = ""
    context: tls.SSLContext | None = None
    any_host: bool = False
    """Who asks has shown a certificate."""

    @property
    def scheme(self) -> str:
        return "http" if self.context is None else "https"


def rest_access(options: Mapping[str, Any], declared: Mapping[str, Any]) -> RestAccess:
    """`options` by name, None where it is not given; `declared` is what the file says, under the same names:
    port, host, token_file, keystore, client_ca."""
    given = {name: value for name, value in options.items() if value is not None}
    found = {**declared, **given}
    if found.get("port") is None:
        if given:
            fail(f"{_option(next(iter(given)))} needs --rest-port", USAGE)
        return RestAccess()
    from protocol.client.tls import TlsSettingsError
    from replicator.rest.hosts import is_local
    from replicator.rest.server import tls_context

    host, keystore, client_ca = (
        found.get("host") or "127.0.0.1",
        found.get("keystore"),
        found.get("client_ca"),
    )
    if client_ca is not None and keystore is None:
        fail("--rest-client-ca needs --rest-keystore: certificates are shown over TLS only", USAGE)
    token = _token(found.get("token_file"))
    if not token and client_ca is None and not is_local(host):
        fail(
            f"--rest-host {host} is reached by others, who could pause links: say --rest-token-file (or"
            " --rest-keystore and --rest-client-ca), or leave it at 127.0.0.1",
            USAGE,
        )
    try:
        context = tls_context(keystore, client_ca) if keystore is not None else None
    except TlsSettingsError as error:
        fail(f"REST: {_in_its_words(str(error))}", USAGE)
    return RestAccess(found["port"], host, token, context, client_ca is not None)


def _in_its_words(text: str) -> str:
    for setting, option in (("ssl.keystore.location", "keystore"), ("ssl.truststore.location", "client_ca")):
        text = text.replace(setting, _option(option))
    return text.replace("; set ssl.key.password", "; REST takes a key that is not")


def _option(name: str) -> str:
    return f"--rest-{name.replace('_', '-')}"


def _token(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        fail(f"--rest-token-file {file}: {error}", USAGE)
    if not token:
        fail(f"--rest-token-file {file} is empty", USAGE)
    return token
