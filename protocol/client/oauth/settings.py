"""`SaslBearer` out of Kafka's settings: `sasl.oauthbearer.*`, `sasl.login.*`, the login module's options.

Owns which names there are, whose dialect they are (`sasl.login.callback.handler.class`), and what is missing.
Strimzi's options are `strimzi`'s. Nothing is asked for here: tokens come when a connection is made. Errors
begin with a setting's name and repeat no secret.
"""

from __future__ import annotations

import math
import ssl as tls
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote_plus, unquote, urlsplit

from protocol.client.jaas import JaasError, parse_jaas
from protocol.client.oauth import bearer, msk, strimzi
from protocol.client.oauth.endpoint import TokenEndpoint
from protocol.client.oauth.keeping import Refreshing, Tokens
from protocol.client.oauth.sources import FileToken, Source, UnsecuredToken, read_secret
from protocol.client.security import SaslBearer, SecuritySettingsError
from protocol.client.tls import TlsSettings, TlsSettingsError, client_context

MECHANISMS: Final = (bearer.MECHANISM, msk.MECHANISM)
HANDLER: Final = "sasl.login.callback.handler.class"
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_JAAS: Final = "sasl.jaas.config"
_ASSERTION: Final = "sasl.oauthbearer.assertion.file"
_RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
_KAFKA: Final = "org.apache.kafka.common.security.oauthbearer."

_REFRESHING: Final[Mapping[str, tuple[str, float, float, float]]] = {
    "sasl.login.refresh.window.factor": ("window_factor", 1, 0.5, 1),
    "sasl.login.refresh.window.jitter": ("window_jitter", 1, 0, 0.25),
    "sasl.login.refresh.min.period.seconds": ("min_period_s", 1, 0, 900),
    "sasl.login.refresh.buffer.seconds": ("buffer_s", 1, 0, 3600),
    "sasl.login.retry.backoff.ms": ("backoff_s", 1000, 0, 10**9),
    "sasl.login.retry.backoff.max.ms": ("longest_backoff_s", 1000, 0, 10**9),
}
"""Field of `Refreshing`, how many of the setting's units are one of its, lowest and highest value."""
TAKEN: Final = (
    HANDLER,
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    *_REFRESHING,
    _URL,
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.header.urlencode",
    _ASSERTION,
    _RETRIEVER,
)
"""What counts where the mechanism is one of `MECHANISMS`, beside `sasl.jaas.config`."""
PASSED_OVER: Final = (
    "sasl.login.class",
    "sasl.client.callback.handler.class",
    *(
        "sasl.oauthbearer." + name
        for name in (
            "jwks.endpoint.url",
            "jwks.endpoint.refresh.ms",
            "jwks.endpoint.retry.backoff.ms",
            "jwks.endpoint.retry.backoff.max.ms",
            "clock.skew.seconds",
            "expected.audience",
            "expected.issuer",
            "scope.claim.name",
            "sub.claim.name",
            "jwt.validator.class",
            "assertion.algorithm",
            "assertion.claim.aud",
            "assertion.claim.exp.seconds",
            "assertion.claim.iss",
            "assertion.claim.jti.include",
            "assertion.claim.nbf.seconds",
            "assertion.claim.sub",
            "assertion.private.key.file",
            "assertion.private.key.passphrase",
            "assertion.template.file",
        )
    ),
)
"""What else Kafka 4.3 knows: brokers', or of assertions that are signed by the client."""

_HANDLERS: Final[Mapping[str, str]] = {
    _KAFKA + "OAuthBearerLoginCallbackHandler": "kafka",
    _KAFKA + "secured.OAuthBearerLoginCallbackHandler": "kafka",  # until Kafka 3.9
    _KAFKA + "internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler": "unsecured",
    "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler": "strimzi",
    "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler": "msk",
}
_CONFLUENT: Final = "io.confluent.kafka.clients.plugins.auth.token.TokenUserLoginCallbackHandler"
_INSTEAD: Final = (
    f"write {_URL} instead (with the client's id and secret, or file://… where something else keeps a token)"
)
_UNSECURED: Final = "unsecuredLogin"
_CLAIMS: Final[Mapping[str, Callable[[str], Any]]] = {
    "String": str,
    "Number": float,
    "List": bearer.listed,
}


class _Given:
    """The settings of one client; blank ones are none."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = {name: text.strip() for name, text in properties.items() if text.strip()}
        self.module, self.options = "", dict[str, str]()
        if _JAAS in self.properties:
            try:
                found = parse_jaas(self.properties[_JAAS])
            except JaasError as error:
                raise SecuritySettingsError(f"{_JAAS}: {error}") from None
            self.module = found.name
            self.options = {name: text for name, text in found.options.items() if text}

    def get(self, name: str, option: str = "") -> str | None:
        """The setting, or the login module's option, which is its older form."""
        return self.properties.get(name) or self.options.get(option)

    def need(self, name: str, option: str) -> str:
        value = self.get(name, option)
        if value is None:
            raise SecuritySettingsError(f"{name}: is not set, nor is {option} in {_JAAS}")
        return value

    def number(self, name: str, default: float, divisor: float, low: float = 1, high: float = 10**9) -> float:
        """`low` and `high` are in the setting's units, the value is divided."""
        if name not in self.properties:
            return default
        try:
            value = float(self.properties[name])
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise SecuritySettingsError(f"{name}: is not a number between {low:g} and {high:g}")
        return value / divisor


def sasl_bearer(mechanism: str, properties: Mapping[str, str]) -> SaslBearer:
    """Raises SecuritySettingsError."""
    given = _Given(properties)
    kind = "msk" if mechanism == msk.MECHANISM else _kind(given)
    return {"kafka": _kafka, "strimzi": _strimzi, "unsecured": _unsecured, "msk": _msk}[kind](given)


def _kind(given: _Given) -> str:
    handler = given.get(HANDLER)
    if handler is not None:
        if handler == _CONFLUENT:
            raise SecuritySettingsError(
                f"{HANDLER}: {handler} asks Confluent's metadata service, which is not offered: {_INSTEAD}"
            )
        if handler not in _HANDLERS:
            raise SecuritySettingsError(
                f"{HANDLER}: {handler} is a Java class, which cannot run here: {_INSTEAD}"
            )
        return _HANDLERS[handler]
    if _URL in given.properties:
        return "kafka"
    if any(name.startswith("oauth.") for name in given.options):
        return "strimzi"
    if given.module == "IAMLoginModule":
        return "msk"
    if any(name.startswith(_UNSECURED) for name in given.options):
        return "unsecured"
    return "kafka"


def _bearer(given: _Given, source: Source, place: str, prefix: str) -> SaslBearer:
    try:
        extensions = bearer.extensions_of(given.options, prefix)
    except ValueError as error:
        raise SecuritySettingsError(f"{_JAAS}: {error}") from None
    usual = Refreshing()
    values = {
        field: given.number(name, getattr(usual, field), *limits)
        for name, (field, *limits) in _REFRESHING.items()
    }
    return SaslBearer(Tokens(source, Refreshing(**values), place), extensions)


def _kafka(given: _Given) -> SaslBearer:
    url = given.get(_URL)
    if url is None:
        raise SecuritySettingsError(
            f"{_URL}: is not set: where tokens come from, https://… (or file://… for one in a file)"
        )
    if urlsplit(url).scheme.lower() == "file":
        path = unquote(urlsplit(url).path)
        return _bearer(given, FileToken(path), path, "extension_")
    endpoint = TokenEndpoint(
        checked_url(url, _URL),
        *_grant(given),
        tls_context(given, url, ""),
        given.number("sasl.login.connect.timeout.ms", 10.0, 1000),
        given.number("sasl.login.read.timeout.ms", 10.0, 1000),
    )
    return _bearer(given, endpoint, endpoint.place, "extension_")


def _grant(given: _Given) -> tuple[Callable[[], Mapping[str, str]], tuple[str, str] | None]:
    """What is posted, and the client that a header names."""
    scope = given.get("sasl.oauthbearer.scope", "scope")
    scopes = {} if scope is None else {"scope": scope}
    retriever = (given.get(_RETRIEVER) or _KAFKA + "DefaultJwtRetriever").removeprefix(_KAFKA)
    if retriever not in ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever"):
        raise SecuritySettingsError(f"{_RETRIEVER}: {retriever} is not offered: {_INSTEAD}")
    assertion = given.get(_ASSERTION)
    if assertion is None and (
        retriever == "JwtBearerJwtRetriever" or given.get("sasl.oauthbearer.assertion.private.key.file")
    ):
        raise SecuritySettingsError(f"{_ASSERTION}: is not set; assertions are not signed here")
    if retriever == "JwtBearerJwtRetriever":
        grant = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", **scopes}
        return lambda: {**grant, "assertion": read_secret(str(assertion))}, None
    grant = {"grant_type": "client_credentials", **scopes}
    names = ("sasl.oauthbearer.client.credentials.client.id", "clientId")
    if assertion is not None:
        client = given.get(*names)
        grant |= {"client_assertion_type": strimzi.ASSERTION_TYPE} | ({"client_id": client} if client else {})
        return lambda: {**grant, "client_assertion": read_secret(assertion)}, None
    pair = (
        given.need(*names),
        given.need("sasl.oauthbearer.client.credentials.client.secret", "clientSecret"),
    )
    if (given.get("sasl.oauthbearer.header.urlencode") or "").lower() == "true":
        pair = (quote_plus(pair[0]), quote_plus(pair[1]))
    return lambda: grant, pair


def _strimzi(given: _Given) -> SaslBearer:
    try:
        found = strimzi.read(given.options)
    except ValueError as error:
        raise SecuritySettingsError(f"{_JAAS}: {error}") from None
    if not isinstance(found, strimzi.Grant):
        return _bearer(given, found[0], found[1], "oauth.sasl.extension.")
    endpoint = TokenEndpoint(
        checked_url(found.url, _JAAS),
        found.form,
        found.client,
        tls_context(given, found.url, "oauth."),
        found.connect_s,
        found.read_s,
    )
    return _bearer(given, endpoint, endpoint.place, "oauth.sasl.extension.")


def _unsecured(given: _Given) -> SaslBearer:
    """Kafka: OAuthBearerUnsecuredLoginCallbackHandler."""
    claims: dict[str, Any] = {}
    for name, text in given.options.items():
        kind, _, claim = name.removeprefix(_UNSECURED).partition("Claim_")
        if not name.startswith(_UNSECURED) or not claim:
            continue
        try:
            claims[claim] = _CLAIMS[kind](text)
        except (KeyError, ValueError):
            raise SecuritySettingsError(f"{_JAAS}: {name} is not one of Kafka's, or no number") from None
    principal = given.options.get(f"{_UNSECURED}PrincipalClaimName", "sub")
    if principal not in claims:
        raise SecuritySettingsError(f"{_JAAS}: {_UNSECURED}StringClaim_{principal} is not set")
    try:
        lifetime_s = float(given.options.get(f"{_UNSECURED}LifetimeSeconds", "3600"))
    except ValueError:
        raise SecuritySettingsError(f"{_JAAS}: {_UNSECURED}LifetimeSeconds is not a number") from None
    return _bearer(given, UnsecuredToken(claims, lifetime_s), "nobody (unsecured)", f"{_UNSECURED}Extension_")


def _msk(given: _Given) -> SaslBearer:
    if not msk.installed():
        raise SecuritySettingsError(
            "sasl.mechanism: Amazon MSK's IAM needs a package that is not installed: pip install"
            " aws-msk-iam-sasl-signer-python (or 'isthmus[msk]')"
        )
    return _bearer(given, msk.MskToken(given.options), "AWS", "extension_")


def checked_url(url: str, name: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme.lower() in ("https", "http") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise SecuritySettingsError(f"{name}: a token endpoint is https://host/path, http:// or file://")
    return url


def tls_context(given: _Given, url: str, prefix: str) -> tls.SSLContext | None:
    """For the token endpoint: the options `ssl.*` (behind `prefix`) of the login module, as in Kafka. Without
    any both the system's authorities and those of the client's own trust store count."""
    if urlsplit(url).scheme.lower() != "https":
        return None
    start = f"{prefix}ssl."
    own = {name.removeprefix(prefix): text for name, text in given.options.items() if name.startswith(start)}
    try:
        if own:
            check = own.get("ssl.endpoint.identification.algorithm", "https").lower()
            return client_context(TlsSettings.from_properties(own), check_host=check not in ("", "none"))
        trust = {name: text for name, text in given.properties.items() if name.startswith("ssl.truststore.")}
        context = client_context(TlsSettings.from_properties(trust))
        context.load_default_certs()
    except TlsSettingsError as error:
        raise SecuritySettingsError(f"{_JAAS}: {error}" if own else str(error)) from None
    return context
