"""Asking a token endpoint for a token: one HTTP request (RFC 6749, KIP-768, KIP-1139), and what went wrong.

Blocking; who has an event loop asks in a thread. Owns the request, the limits on the answer, and the words
for each failure. No message repeats a secret or a token. What is asked for is `settings`' to say.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl as tls
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import SplitResult, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from protocol.client.errors import TokenError
from protocol.client.oauth.bearer import NotATokenError, Token
from protocol.client.reasons import reason

_MOST_BYTES: Final = 1 << 20
_LONGEST_WORDS: Final = 200
_HEADERS: Final = {
    "Accept": "application/json",
    "Cache-Control": "no-cache",
    "Content-Type": "application/x-www-form-urlencoded",
}
_MAY_PASS: Final = (408, 425, 429)
_FOR_EVER: Final = (501, 505)

_ADDRESS: Final = "look at the address: it has to be the token endpoint, not a page for people"
_CLIENT: Final = "look at the client's id and secret, and whether it may have this grant and scope there"
_AUTHORITY: Final = (
    "if another authority than the system's signed its certificate, give it as ssl.truststore.location in"
    " sasl.jaas.config (beside ssl.truststore.type)"
)
_REACH: Final = "look whether it runs and can be reached from this machine (HTTPS_PROXY counts)"


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """A source of tokens. `form` makes what is posted, anew each time; `client` is id and secret, if they go
    into a header. Times in seconds."""

    url: str
    form: Callable[[], Mapping[str, str]] = field(repr=False)
    client: tuple[str, str] | None = field(default=None, repr=False)
    context: tls.SSLContext | None = field(default=None, repr=False)
    connect_s: float = 10.0
    read_s: float = 10.0

    @property
    def place(self) -> str:
        """The address without what may be secret in it."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def __call__(self, host: str) -> Token:
        """Raises TokenError."""
        form = self.form()
        status, headers, body = self._posted(urlencode(form))
        said = _json(body)
        if status not in (200, 201):
            raise self._refused(status, headers, said, form)
        text = _text(said, "access_token") or _text(said, "id_token")
        if not text:
            kind = headers.get("Content-Type", "").partition(";")[0].strip() or "nothing"
            lacks = "JSON without access_token" if isinstance(said, dict) else f"{kind} instead of JSON"
            raise self._error(f"it answers {lacks}", _ADDRESS)
        try:
            token = Token.read(text)
        except NotATokenError as error:
            raise self._error(f"its access_token {error}", _ADDRESS) from None
        return _limited(token, said)

    def _posted(self, body: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        began = time.monotonic()
        connection, limit_s = self._connection(parts), self.connect_s
        try:
            connection.connect()
            limit_s = self.read_s
            connection.sock.settimeout(limit_s)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", target, body.encode(), {**_HEADERS, **self._authorization()})
            content = b""
            with connection.getresponse() as answer:
                while piece := answer.read1(1 << 16):
                    content += piece
                    if len(content) > _MOST_BYTES:
                        raise self._error("its answer is larger than a megabyte", _ADDRESS)
                    if time.monotonic() - began > self.connect_s + self.read_s:
                        raise TimeoutError
            return answer.status, answer.headers, content
        except TimeoutError:
            raise self._error(f"no answer within {limit_s:g} s", _REACH) from None
        except tls.SSLCertVerificationError as error:
            raise self._error(f"its certificate is not trusted: {error.verify_message}", _AUTHORITY) from None
        except tls.SSLError as error:
            raise self._error(reason(error, host), "look at the address, and whether it is https") from None
        except OSError as error:
            raise self._error(reason(error, host), _REACH) from None
        except http.client.HTTPException as error:
            words = type(error).__name__ if isinstance(error, http.client.BadStatusLine) else str(error)
            raise self._error(f"it does not speak HTTP ({words[:_LONGEST_WORDS]})", _ADDRESS) from None
        finally:
            connection.close()

    def _connection(self, parts: SplitResult) -> http.client.HTTPConnection:
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self.connect_s)
        proxy = getproxies().get("https", "")
        if not proxy or proxy_bypass(host):
            return http.client.HTTPSConnection(host, port, timeout=self.connect_s, context=self.context)
        through = urlsplit(proxy if "//" in proxy else f"//{proxy}")
        made = http.client.HTTPSConnection(
            through.hostname or "", through.port, timeout=self.connect_s, context=self.context
        )
        made.set_tunnel(host, port or 443)
        return made

    def _authorization(self) -> dict[str, str]:
        if self.client is None:
            return {}
        both = base64.b64encode(":".join(self.client).encode()).decode()
        return {"Authorization": f"Basic {both}"}

    def _refused(
        self, status: int, headers: http.client.HTTPMessage, said: object, form: Mapping[str, str]
    ) -> TokenError:
        words = " ".join(filter(None, (_text(said, "error"), _text(said, "error_description"))))
        words = re.sub(r"[^\x20-\x7e]+", " ", words)[:_LONGEST_WORDS]
        for secret in (*((self.client or ())[1:]), *(form[name] for name in form if name not in _PUBLIC)):
            words = words.replace(secret, "***") if secret else words
        text = f"HTTP {status}{f' ({words})' if words else ''}"
        if 300 <= status < 400:
            elsewhere = urlsplit(headers.get("Location", ""))
            text += f", a way to {elsewhere.scheme}://{elsewhere.netloc}{elsewhere.path}"
            return self._error(text, "write that address, or the one of the token endpoint", curable=False)
        if status in _FOR_EVER or (400 <= status < 500 and status not in _MAY_PASS):
            return self._error(text, _CLIENT if status in (400, 401, 403) else _ADDRESS, curable=False)
        return self._error(text, "look at what it says in its own log; it is asked again")

    def _error(self, what: str, to_do: str, *, curable: bool = True) -> TokenError:
        return TokenError(f"no token from {self.place}: {what}", to_do, curable=curable)


_PUBLIC: Final = frozenset(
    ("grant_type", "scope", "audience", "client_id", "username", "client_assertion_type")
)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _text(said: object, name: str) -> str:
    value = said.get(name) if isinstance(said, dict) else None
    return value.strip() if isinstance(value, str) else ""


def _limited(token: Token, said: Mapping[str, Any]) -> Token:
    """The token ends at the earlier of both times: what it says of itself, and `expires_in` from now on,
    which holds where the clocks of both machines differ."""
    try:
        ends = time.time() + float(str(said.get("expires_in")))  # some write it as a text
    except ValueError:
        return token
    if token.ends is None or ends < token.ends:
        return Token(token.text, token.subject, token.begins, ends)
    return token
