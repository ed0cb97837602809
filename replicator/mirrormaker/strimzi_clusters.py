"""A cluster of a KafkaMirrorMaker2 as Kafka's client settings: address, TLS, authentication, `config`.

Owns these fields (Strimzi: KafkaMirrorMaker2ClusterSpec, ClientTls, KafkaClientAuthentication…). What Secrets
hold comes by references, as the operator writes them, and is looked up where the settings are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from protocol.properties_text import Property
from replicator.mirrormaker import meanings
from replicator.mirrormaker.kubernetes_secrets import Secrets
from replicator.mirrormaker.providers import ProviderError
from replicator.mirrormaker.yaml_nodes import Node

_HANDLER: Final = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_OAUTH: Final[Mapping[str, str]] = {
    "clientId": "oauth.client.id",
    "tokenEndpointUri": "oauth.token.endpoint.uri",
    "scope": "oauth.scope",
    "audience": "oauth.audience",
    "username": "oauth.password.grant.username",
    "accessTokenLocation": "oauth.access.token.location",
    "clientAssertionLocation": "oauth.client.assertion.location",
    "clientAssertionType": "oauth.client.assertion.type",
    "clientGrantType": "oauth.client.credentials.grant.type",
    "grantType": "oauth.client.credentials.grant.type",
    "connectTimeoutSeconds": "oauth.connect.timeout.seconds",
    "readTimeoutSeconds": "oauth.read.timeout.seconds",
}
_OAUTH_SECRETS: Final[Mapping[str, tuple[str, str]]] = {
    "clientSecret": ("oauth.client.secret", "key"),
    "accessToken": ("oauth.access.token", "key"),
    "refreshToken": ("oauth.refresh.token", "key"),
    "clientAssertion": ("oauth.client.assertion", "key"),
    "passwordSecret": ("oauth.password.grant.password", "password"),
}
"""Option, and the field of its Secret's key."""
_OAUTH_NO_MEANING: Final[Mapping[str, str]] = {
    **dict.fromkeys(("httpRetries", "httpRetryPauseMs"), "an endpoint that fails is asked again"),
    **dict.fromkeys(
        ("accessTokenIsJwt", "maxTokenExpirySeconds"), "a token's end is read from it or its answer"
    ),
    "enableMetrics": "metrics are Prometheus's: --metrics-port",
    "includeAcceptHeader": "JSON is asked for in any case",
}
_CUSTOM: Final = ("ssl.keystore.", "sasl.")
"""What Strimzi takes of a custom authentication's `config`."""
_NOT_OF_A_CLUSTER: Final = ("consumer.", "producer.", "admin.")


class Cluster:
    """What stands in `spec.target`, `spec.mirrors[].source` or `spec.clusters[]`."""

    def __init__(self, node: Node, secrets: Secrets, namespace: str, more: Iterable[str] = ()) -> None:
        self.node = node
        self._secrets = secrets
        self._namespace = namespace
        node.fields(("alias", "bootstrapServers", "tls", "authentication", "config", *more), {})
        self.alias = node.needed("alias") or ""
        self._bootstrap = node.needed("bootstrapServers")
        self._made: dict[str, Property] = {}
        self._config = node.settings("config")
        if self.alias:
            self._put("alias", node.property("alias"))
        if self._bootstrap is not None:
            self._put("bootstrap.servers", node.property("bootstrapServers"))
        self._security()

    def as_source(self) -> dict[str, Property]:
        """`source.cluster.…` of a connector's configuration."""
        for name, item in self._config.items():
            if name.startswith(_NOT_OF_A_CLUSTER) or _is_known(name):
                self.node.said.note(
                    item,
                    "has no effect at a source, in Strimzi neither: it belongs into sourceConnector.config",
                )
        config = {
            name: item
            for name, item in self._config.items()
            if not name.startswith(_NOT_OF_A_CLUSTER) and not _is_known(name)
        }
        return _behind("source.cluster.", self._made | config)

    def as_target(self) -> dict[str, Property]:
        """`target.cluster.…` of a connector's configuration."""
        config = {name: item for name, item in self._config.items() if _is_clients(name)}
        return _behind("target.cluster.", self._made | config)

    def worker_settings(self) -> dict[str, Property]:
        """What `config` says to the Connect worker."""
        return {name: item for name, item in self._config.items() if not _is_clients(name)}

    def _put(self, name: str, at: Property, text: str | None = None) -> None:
        self._made[name] = Property(name, at.text if text is None else text, at.line, at.place)

    # How to be let in

    def _security(self) -> None:
        tls = self.node.inner("tls", needed=False)
        if tls is not None:
            tls.fields(("trustedCertificates",), {})
            self._put_trusted(tls, "trustedCertificates")
        sasl = self._authentication()
        protocol = ("SASL_SSL" if tls else "SASL_PLAINTEXT") if sasl else "SSL" if tls else "PLAINTEXT"
        at = self.node.property("authentication" if sasl else "tls" if tls is not None else "")
        self._put("security.protocol", at, protocol)

    def _put_trusted(self, tls: Node, field: str) -> None:
        trusted = self._certificates(tls, field)
        if trusted is not None:
            self._put("ssl.truststore.type", tls.property(field), "PEM")
            self._put("ssl.truststore.certificates", tls.property(field), trusted)

    def _certificates(self, node: Node, field: str) -> str | None:
        """References to all of them; None: there are none, so the system's authorities count."""
        found: list[str] = []
        for one in node.each(field):
            one.fields(("secretName", "certificate", "pattern"), {})
            name, key, pattern = one.needed("secretName"), one.text("certificate"), one.text("pattern")
            if name is None:
                continue
            if (key is None) == (pattern is None):
                one.said.wrong(one.property(""), "has to have either certificate or pattern")
                continue
            try:
                keys = [key] if key is not None else self._secrets.names(name, pattern or "")
            except ProviderError as error:
                one.said.wrong(one.property("secretName"), str(error))
                continue
            found += [self._reference(name, one) for one in keys]
        return "\n".join(found) or None

    def _reference(self, name: str, key: str) -> str:
        return f"${{strimzisecrets:{self._namespace}/{name}:{key}}}"

    def _secret(self, node: Node, field: str, key: str) -> str | None:
        """A reference to what a field names, `{secretName: …, KEY: …}`."""
        inner = node.inner(field)
        if inner is None:
            return None
        inner.fields(("secretName", key), {})
        name, at = inner.needed("secretName"), inner.needed(key)
        return self._reference(name, at) if name and at else None

    def _authentication(self) -> bool:
        """Whether it is by SASL, and nothing is wrong with it: a client that could not connect with what is
        left would be a second problem, at another place."""
        node = self.node.inner("authentication", needed=False)
        if node is None:
            return False
        kinds: dict[str, Callable[[Node], bool]] = {
            "tls": self._tls,
            "plain": lambda node: self._password(node, "PLAIN"),
            "scram-sha-256": lambda node: self._password(node, "SCRAM-SHA-256"),
            "scram-sha-512": lambda node: self._password(node, "SCRAM-SHA-512"),
            "oauth": self._oauth,
            "custom": self._custom,
        }
        kind = node.needed("type")
        if kind is None:
            return False
        if kind not in kinds:
            node.said.wrong(node.property("type"), f"is not among {', '.join(kinds)}")
            return False
        told = len(node.said.problems)
        by_sasl = kinds[kind](node)
        return by_sasl and len(node.said.problems) == told

    def _tls(self, node: Node) -> bool:
        node.fields(("type", "certificateAndKey"), {})
        inner = node.inner("certificateAndKey")
        if inner is not None:
            inner.fields(("secretName", "certificate", "key"), {})
            name, chain, key = (inner.needed(field) for field in ("secretName", "certificate", "key"))
            if name and chain and key:
                self._put("ssl.keystore.type", inner.property(""), "PEM")
                self._put(
                    "ssl.keystore.certificate.chain",
                    inner.property("certificate"),
                    self._reference(name, chain),
                )
                self._put("ssl.keystore.key", inner.property("key"), self._reference(name, key))
        return False

    def _password(self, node: Node, mechanism: str) -> bool:
        node.fields(("type", "username", "passwordSecret"), {})
        username, password = node.needed("username"), self._secret(node, "passwordSecret", "password")
        self._put("sasl.mechanism", node.property("type"), mechanism)
        if username and password:  # apart: in a login module's options a password may not hold quotes
            self._put("sasl.username", node.property("username"))
            self._put("sasl.password", node.property("passwordSecret"), password)
        return True

    def _oauth(self, node: Node) -> bool:
        lists = ("tlsTrustedCertificates", "disableTlsHostnameVerification", "saslExtensions")
        node.fields(("type", *_OAUTH, *_OAUTH_SECRETS, *lists), _OAUTH_NO_MEANING)
        options = {name: _quoted(node.text(field) or "") for field, name in _OAUTH.items() if node.has(field)}
        for field, (name, key) in _OAUTH_SECRETS.items():
            if node.has(field) and (reference := self._secret(node, field, key)) is not None:
                options[name] = reference
        trusted = self._certificates(node, "tlsTrustedCertificates")
        if trusted is not None:
            options |= {"oauth.ssl.truststore.type": "PEM", "oauth.ssl.truststore.certificates": trusted}
        if node.text("disableTlsHostnameVerification") == "true":
            options["oauth.ssl.endpoint.identification.algorithm"] = ""
        for name, item in node.settings("saslExtensions").items():
            options[f"oauth.sasl.extension.{name}"] = _quoted(item.text)
        text = " ".join(f'{name}="{value}"' for name, value in options.items())
        self._put("sasl.mechanism", node.property("type"), "OAUTHBEARER")
        self._put("sasl.login.callback.handler.class", node.property("type"), _HANDLER)
        self._put("sasl.jaas.config", node.property(""), f"{_MODULE} required {text} ;")
        return True

    def _custom(self, node: Node) -> bool:
        node.fields(("type", "sasl", "config"), {})
        for name, item in node.settings("config").items():
            if name.startswith(_CUSTOM):
                self._put(name, item)
            else:
                node.said.note(
                    item, f"has no effect here, in Strimzi neither: it takes {' and '.join(_CUSTOM)}…"
                )
        return node.text("sasl") == "true"


def _is_clients(name: str) -> bool:
    return meanings.is_security(name) or (
        name in meanings.CLIENT_NO_MEANING and name not in meanings.TAKE_OVER
    )


def _is_known(name: str) -> bool:
    """As a setting of a worker or a connector, and not of a cluster's clients."""
    known = (meanings.LINK, meanings.CHECKED, meanings.NO_MEANING, meanings.TAKE_OVER)
    return not _is_clients(name) and (
        any(name in names for names in known) or name.startswith(meanings.WORKER_PREFIXES)
    )


def _behind(prefix: str, settings: Mapping[str, Property]) -> dict[str, Property]:
    return {
        prefix + name: Property(prefix + name, item.text, item.line, item.place)
        for name, item in settings.items()
    }


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
