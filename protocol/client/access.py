"""Where a cluster is and how to be let in: one value for our own client and for librdkafka's.

Owns the two translations of Kafka's client settings for security; secrets never show in a repr.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from protocol.client.cluster import ClusterClient
from protocol.client.jaas import parse_jaas
from protocol.client.oauth.settings import MECHANISMS as OAUTH_MECHANISMS
from protocol.client.oauth.settings import sasl_bearer
from protocol.client.properties import client_security
from protocol.client.routing import parse_bootstrap
from protocol.client.tls import JAVA, PEM, TlsSettings, key_store, trusted

_SAME: Final = (
    "security.protocol",
    "sasl.username",
    "sasl.password",
    "ssl.key.password",
)
_OTHER_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.truststore.certificates": ("ssl.ca.pem",),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
    "ssl.keystore.key": ("ssl.key.pem",),
}
"""A PEM store is one file here; librdkafka wants key and certificates named apart."""
_UNKNOWN_S: Final = 300.0
"""librdkafka asks for another token before this is over, where nothing says when one ends."""


@dataclass(frozen=True, slots=True)
class Access:
    """`bootstrap`: `host:port,…`. `properties`: security.protocol, sasl.*, ssl.*, as Java's clients have."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    name: str = ""
    """What people call the cluster, for errors."""

    def client(self, client_id: str, **options: Any) -> ClusterClient:
        """Not connected yet. Raises SecuritySettingsError, TlsSettingsError (both ValueErrors)."""
        security = client_security(self.properties)
        return ClusterClient(self.bootstrap, client_id=client_id, config=security, name=self.name, **options)

    def librdkafka(self) -> dict[str, Any]:
        """Settings of a confluent_kafka client. Raises JaasError, TlsSettingsError,
        SecuritySettingsError (all ValueErrors)."""
        given = self.properties
        found: dict[str, Any] = {"bootstrap.servers": self.bootstrap}
        found |= {name: given[name] for name in _SAME if name in given}
        for name, others in _OTHER_NAMES.items():
            found |= {other: given[name] for other in others if name in given}
        self._translate_java_stores(found)
        mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms"))
        if mechanism is not None:
            found["sasl.mechanism"] = mechanism
        if mechanism in OAUTH_MECHANISMS and given.get("security.protocol", "").upper().startswith("SASL"):
            found |= self._tokens(mechanism)
        elif "sasl.jaas.config" in given:
            options = parse_jaas(given["sasl.jaas.config"]).options
            found |= {f"sasl.{name}": options[name] for name in ("username", "password") if name in options}
        if "ssl.endpoint.identification.algorithm" in given:
            check = given["ssl.endpoint.identification.algorithm"].strip() or "none"
            found["ssl.endpoint.identification.algorithm"] = check
        return found

    def _tokens(self, mechanism: str) -> dict[str, Any]:
        """Its tokens come from where our own client's do; it asks before the last one ends."""
        sasl = sasl_bearer(mechanism, self.properties)
        host = parse_bootstrap(self.bootstrap)[0][0]

        def ask(_: str) -> tuple[str, float, str, dict[str, str]]:
            token = sasl.tokens.ask(host)
            ends = time.time() + _UNKNOWN_S if token.ends is None else token.ends
            return token.text, ends, token.subject, dict(sasl.extensions)

        return {"sasl.mechanism": sasl.mechanism, "oauth_cb": ask}

    def _translate_java_stores(self, found: dict[str, Any]) -> None:
        """librdkafka reads no trust store of keytool's, and of a key store not the chain: it gets texts."""
        java = {store for store in ("truststore", "keystore") if self._type_of(store) in JAVA}
        settings = TlsSettings.from_properties(self.properties)
        certificates = trusted(settings) if "truststore" in java else None
        if certificates is not None:
            found.pop("ssl.ca.location", None)
            found["ssl.ca.pem"] = certificates[0]
        key = key_store(settings) if "keystore" in java else None
        if key is not None:
            for name in _OTHER_NAMES["ssl.keystore.location"]:
                found.pop(name, None)
            found |= {"ssl.key.pem": key.key, "ssl.certificate.pem": key.chain}
            found["ssl.key.password"] = key.password or ""

    def _type_of(self, store: str) -> str:
        return self.properties.get(f"ssl.{store}.type", PEM).upper()
