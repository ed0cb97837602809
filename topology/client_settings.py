"""How commands and links are let in to a cluster that runs elsewhere: `clusters.NAME.client` of a topology.

Kafka's client settings for security, under Kafka's names. Owns which there are, what is wrong with them, and
their texts for clients. Values may be secrets: no message repeats one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from topology.problems import suggestion

_FILES: Final = ("ssl.truststore.location", "ssl.keystore.location")
NAMES: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.retry.backoff.ms",
    "sasl.login.retry.backoff.max.ms",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.jwt.retriever.class",
    *_FILES,
    "ssl.truststore.certificates",
    "ssl.truststore.type",
    "ssl.truststore.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.type",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "ssl.enabled.protocols",
)
_ONLY_ELSEWHERE = "is for clusters with bootstrap_servers: brokers that are started here have plain listeners"
Found = tuple[tuple[str | int, ...], str]


def client_properties(client: Mapping[str, object], folder: Path) -> dict[str, str]:
    """As clients take them: files are looked for from `folder` on, and stores are PEM unless they have
    a password of their own."""
    texts = {name: str(value) for name, value in client.items()}
    for name in _FILES:
        if name in texts:
            texts[name] = str(folder / texts[name])
    for store in ("truststore", "keystore"):
        if any(name.startswith(f"ssl.{store}.") for name in texts):
            form = "PKCS12" if f"ssl.{store}.password" in texts else "PEM"
            texts.setdefault(f"ssl.{store}.type", form)
    return texts


def client_problems(document: Mapping[str, Any], folder: Path) -> Iterator[Found]:
    """Of all clusters of a plain document."""
    clusters = document.get("clusters")
    for name, body in clusters.items() if isinstance(clusters, dict) else ():
        client = body.get("client") if isinstance(body, dict) else None
        if isinstance(client, dict) and client:
            at = ("clusters", str(name), "client")
            if body.get("bootstrap_servers") is None:
                yield at, _ONLY_ELSEWHERE
            yield from _problems(client, at, folder)


def _problems(client: Mapping[str, Any], at: tuple[str, ...], folder: Path) -> Iterator[Found]:
    unknown = [name for name in client if name not in NAMES]
    for name in unknown:
        yield (*at, str(name)), f"unknown setting of a client{suggestion(str(name), NAMES)}"
    if unknown or any(not isinstance(value, str | int | bool) for value in client.values()):
        return  # the model says the rest
    if any("${" in str(value) for value in client.values()):
        return  # a secret that could not be had, which is said already
    # A command that needs no client starts faster.
    from protocol.client.properties import client_security, without_effect

    protocol = str(client.get("security.protocol", "PLAINTEXT")).upper()
    mechanism = str(client.get("sasl.mechanism", ""))
    endpoint = str(client.get("sasl.oauthbearer.token.endpoint.url", "")).startswith("https:")
    for name in client:
        if name.startswith("sasl.") and "SASL" not in protocol:
            yield (*at, name), f"has no meaning with security.protocol {protocol}"
        elif without_effect(name, mechanism):
            yield (*at, name), f"has no meaning with sasl.mechanism {mechanism}"
        elif name.startswith("ssl.") and "SSL" not in protocol and not endpoint:
            yield (*at, name), f"has no meaning with security.protocol {protocol}"
    try:
        client_security(client_properties(client, folder))
    except ValueError as error:
        name, _, message = str(error).partition(": ")
        yield (*at, name) if name in client else at, message if name in client else str(error)
