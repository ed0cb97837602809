"""An identity provider on this machine: a token endpoint, and the keys by which brokers verify its tokens."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT, SECRET = "isthmus", "s3cr=t & more"
Answer = tuple[int, str, str]
"""Status, content type, body."""


def encoded(part: bytes | dict[str, Any]) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class TokenServer:
    """`answer`, where it is set, takes the place of what is answered; `asked` has headers and form of each
    request. Tokens hold for `lifetime_s`."""

    def __init__(self, lifetime_s: float = 3600, tls: ssl.SSLContext | None = None) -> None:
        self.lifetime_s = lifetime_s
        self.asked: list[tuple[dict[str, str], dict[str, str]]] = []
        self.answer: Callable[[], Answer] | None = None
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._scheme = "https" if tls else "http"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def address(self, path: str) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}/{path}"

    @property
    def url(self) -> str:
        return self.address("token")

    def token(self, **claims: Any) -> str:
        now = time.time()
        body = {"sub": CLIENT, "iat": now, "exp": now + self.lifetime_s, "scope": "kafka", **claims}
        signed = f"{encoded({'alg': 'RS256', 'kid': 'k1', 'typ': 'JWT'})}.{encoded(body)}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{encoded(signature)}"

    def jwks(self) -> str:
        """The key as brokers read it (RFC 7517)."""
        numbers = self._key.public_key().public_numbers()
        parts = {"n": numbers.n.to_bytes(256, "big"), "e": numbers.e.to_bytes(3, "big")}
        key = {"kty": "RSA", "kid": "k1", "use": "sig", "alg": "RS256"}
        return json.dumps({"keys": [key | {name: encoded(raw) for name, raw in parts.items()}]})

    def _answer(self, headers: dict[str, str], form: dict[str, str]) -> Answer:
        self.asked.append((headers, form))
        if self.answer is not None:
            return self.answer()
        expected = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if headers.get("Authorization") != f"Basic {expected}":
            return 401, "application/json", json.dumps({"error": "invalid_client"})
        # Without expires_in, which not every provider gives.
        return 200, "application/json", json.dumps({"access_token": self.token(), "token_type": "Bearer"})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(200, "application/json", server.jwks())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self._send(*server._answer(dict(self.headers), dict(parse_qsl(body))))

            def _send(self, status: int, kind: str, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                if 300 <= status < 400:
                    self.send_header("Location", text)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
