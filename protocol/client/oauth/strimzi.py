"""The options of Strimzi's login module (`oauth.*` in sasl.jaas.config), as far as a client has them.

Pure but for files that are read when a token is asked for. Errors are ValueErrors that begin with the
option's name. (Strimzi: JaasClientOauthLoginCallbackHandler, ClientConfig.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote_plus

from protocol.client.oauth.bearer import NotATokenError, Token
from protocol.client.oauth.sources import FileToken, FixedToken, Source, read_secret

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


@dataclass(frozen=True, slots=True)
class Grant:
    """What is asked of the token endpoint at `url`. Times in seconds."""

    url: str
    form: Callable[[], Mapping[str, str]] = field(repr=False)
    client: tuple[str, str] | None = field(repr=False)
    connect_s: float
    read_s: float


def read(options: Mapping[str, str]) -> Grant | tuple[Source, str]:
    """A grant, or a source that needs none and where its tokens come from. Raises ValueError."""
    token = _secret(options, "oauth.access.token")
    if "oauth.access.token.location" in options:
        path = options["oauth.access.token.location"]
        return FileToken(path), path
    if token is not None:
        try:
            return FixedToken(Token.read(token())), "oauth.access.token"
        except NotATokenError as error:
            raise ValueError(f"oauth.access.token {error}") from None
    client = _need(options, "oauth.client.id")
    url = _need(options, "oauth.token.endpoint.uri")
    times = (_seconds(options, f"oauth.{kind}.timeout.seconds") for kind in ("connect", "read"))
    form, names_client = _form(options, client)
    secret = options.get("oauth.client.secret", "")
    header = (quote_plus(client), quote_plus(secret)) if names_client else None
    return Grant(url, form, header, *times)


def _form(options: Mapping[str, str], client: str) -> tuple[Callable[[], Mapping[str, str]], bool]:
    """What is posted, and whether a header names the client."""
    names = ("scope", "audience")
    more = {name: options[f"oauth.{name}"] for name in names if f"oauth.{name}" in options}
    refresh = _secret(options, "oauth.refresh.token")
    assertion = _secret(options, "oauth.client.assertion")
    if refresh is not None:
        more |= {"grant_type": "refresh_token", "client_id": client}
        return lambda: {**more, "refresh_token": refresh()}, "oauth.client.secret" in options
    if "oauth.password.grant.username" in options:
        more["grant_type"] = "password"
        more["username"] = options["oauth.password.grant.username"]
        more["password"] = _need(options, "oauth.password.grant.password")
        return lambda: more, True
    more["grant_type"] = options.get("oauth.client.credentials.grant.type", "client_credentials")
    if "oauth.client.secret" in options:
        return lambda: more, True
    if assertion is None:
        raise ValueError("oauth.client.secret is not set (nor a token, a refresh token or an assertion)")
    more["client_id"] = client
    more["client_assertion_type"] = options.get("oauth.client.assertion.type", ASSERTION_TYPE)
    return lambda: {**more, "client_assertion": assertion()}, False


def _secret(options: Mapping[str, str], name: str) -> Callable[[], str] | None:
    """Read each time where it stands in a file, which counts before the option itself."""
    path = options.get(f"{name}.location")
    if path is not None:
        return lambda: read_secret(path)
    value = options.get(name)
    return None if value is None else lambda: value


def _need(options: Mapping[str, str], name: str) -> str:
    if name not in options:
        raise ValueError(f"{name} is not set")
    return options[name]


def _seconds(options: Mapping[str, str], name: str) -> float:
    text = options.get(name, "60")
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 10**6:
        raise ValueError(f"{name} is no number of seconds")
    return value
