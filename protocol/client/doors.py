"""What to do about a cluster that does not let a client in: TLS and SASL, by the words of whoever refused.

Pure. The words are OpenSSL's (as Python shows them), the broker's and our client's; what is not known here
gets general advice. Owns no connection and repeats no secret.
"""

from __future__ import annotations

import re
from typing import Final

from protocol.client.errors import (
    AuthenticationError,
    ClientError,
    ConnectError,
    ConnectionLostError,
    TokenError,
    TurnedAwayError,
)

_UNKNOWN: Final = (
    "its certificate is signed by an authority that is not known here: give the one that signed it in"
    " ssl.truststore.location"
)
_USER: Final = (
    "look at sasl.username, sasl.password (or sasl.jaas.config) and sasl.mechanism for this cluster, and"
    " whether the user exists there for that mechanism"
)
_PLAIN: Final = (
    "if this listener wants TLS or a user, set security.protocol (and what belongs to it) for this cluster;"
    " if it wants none, look whether its broker is there"
)
_NOT_THERE: Final = (
    "the listener may want a client certificate that it trusts (ssl.keystore.location), or may"
    " not speak TLS: look at the port and at security.protocol"
)

_KNOWN: Final[tuple[tuple[str, str], ...]] = (
    (r"certificate has expired", "the broker's certificate, or the one that signed it, has to be renewed"),
    (
        r"not yet valid",
        "look at the clocks of both machines, and from when on the broker's certificate holds",
    ),
    (
        r"(Hostname|IP address) mismatch",
        "the broker's certificate does not name the address it was reached at: use a name that it has"
        " (bootstrap_servers, advertised.listeners), or have it made anew;"
        " ssl.endpoint.identification.algorithm: '' gives up this check",
    ),
    (r"it speaks TLS", "this listener wants TLS: set security.protocol to SSL or SASL_SSL for this cluster"),
    (r"it speaks HTTP", "this is a web server: look at the port"),
    (r"self.signed certificate|unable to get (local )?issuer|unknown ca", _UNKNOWN),
    (r"CERTIFICATE_VERIFY_FAILED", "look at the certificate of the broker and ssl.truststore.location"),
    (
        r"certificate.required|bad.certificate|handshake.failure",
        "the broker wants to see a certificate that it trusts: set ssl.keystore.location (key and"
        " certificate)",
    ),
    (
        r"WRONG_VERSION_NUMBER|UNEXPECTED_EOF|record layer failure",
        "this listener does not seem to speak TLS: look at security.protocol and the port",
    ),
    (
        r"SASL mechanism .* is refused .*offered: none",
        "this listener has no SASL: set security.protocol to PLAINTEXT or SSL, or use the port of one that"
        " has",
    ),
    (r"SASL mechanism .* is refused", "the listener offers other mechanisms: set one as sasl.mechanism"),
    (
        r"token .* is refused",
        "look at what its brokers want of a token (sasl.oauthbearer.expected.audience, expected.issuer,"
        " jwks.endpoint.url there; scope here) and at the clocks",
    ),
    (r"[Aa]uthenticat|password|credential|user .* is refused", _USER),
    (
        r"unknown host",
        "correct the name in this cluster's address, or have this machine's DNS (or hosts file) know it",
    ),
    (r"[Cc]onnection refused", "nobody listens there: correct host and port, or start its brokers"),
    (
        r"no connection within|[Uu]nreachable|[Nn]o route",
        "check the address, the network and firewalls between, and whether its brokers run",
    ),
)
_BROKEN_OFF: Final = r"[Cc]onnection|closed|lost|reset|no answer"
_ELSE: Final = "check the address, the network, TLS and the user that is set for this cluster"
_NOBODY: Final = "no broker can be reached: "


def advice(words: str, protocol: str = "PLAINTEXT") -> str:
    """What to do about `words`, the text of the error that ended the attempt with this security.protocol."""
    known = _known(words)
    if known:
        return known
    if re.search(_BROKEN_OFF, words):
        return _NOT_THERE if protocol.upper().endswith("SSL") else _PLAIN
    return _ELSE


def _known(words: str) -> str:
    return next((to_do for pattern, to_do in _KNOWN if re.search(pattern, words)), "")


def explained(error: ClientError, name: str, bootstrap: str, protocol: str) -> ClientError:
    """The error of a first contact with its cluster named: by `name`, or by its address where it has none.

    `to_do` says what to do about it, where nobody is there or somebody does not let this client in.
    """
    where = f"{name} cannot be reached ({protocol} at {bootstrap})" if name else ""
    where = f"{where or f'{bootstrap} cannot be reached ({protocol})'}: "
    if isinstance(error, TokenError):
        return error.again(where)
    if error.to_do:
        return error
    words = str(error).removeprefix(_NOBODY)
    found = type(error)(f"{where}{words}")
    if isinstance(error, AuthenticationError | ConnectionLostError | TurnedAwayError):
        found.to_do = advice(words, protocol)
    elif isinstance(error, ConnectError):
        found.to_do = _known(words)
    return found
