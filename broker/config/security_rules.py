"""What must hold between the settings of listeners that encrypt or authenticate, seen before anything starts.

Pure: files are read, and keys tried, when the listener opens (`broker.security`).
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from broker.config.listeners import Endpoint
from broker.config.security_settings import MECHANISMS, PREFIX, ListenerSecurity
from protocol.client.tls import JAVA, PEM

if TYPE_CHECKING:
    from broker.config.broker_settings import BrokerConfig


def security_contradictions(config: "BrokerConfig", endpoints: Sequence[Endpoint]) -> Iterator[str]:
    for endpoint in endpoints:
        security = config.security_of(endpoint.name)
        if security.encrypted:
            yield from _key_store(security)
        if security.authenticated:
            yield from _mechanisms(security)
    yield from _inter_broker(config, endpoints)
    names = {endpoint.name.lower() for endpoint in endpoints}
    for name in config.given:
        listener = name.removeprefix(PREFIX).partition(".")[0]
        if name.startswith(PREFIX) and listener.lower() not in names:
            yield f"{name}: there is no listener {listener.upper()}"


def _key_store(security: ListenerSecurity) -> Iterator[str]:
    if security.ssl_keystore_location is None and security.ssl_keystore_key is None:
        yield (
            f"listeners: {security.listener} is {security.protocol} and needs a key: set"
            f" {security.setting_name('ssl.keystore.location')} (or ssl.keystore.location) and"
            " ssl.keystore.type (PEM or PKCS12)"
        )
    elif security.ssl_keystore_type.upper() not in (PEM, *JAVA):
        yield (
            f"ssl.keystore.type: {security.ssl_keystore_type} is not read here, but {', '.join((PEM, *JAVA))}"
        )


def _mechanisms(security: ListenerSecurity) -> Iterator[str]:
    for mechanism in security.sasl_enabled_mechanisms:
        if mechanism not in MECHANISMS:
            yield (
                f"sasl.enabled.mechanisms: {security.listener} would need {mechanism}, which is not offered;"
                f" write some of {', '.join(MECHANISMS)}"
            )
    if not security.sasl_enabled_mechanisms:
        yield f"sasl.enabled.mechanisms: {security.listener} has none; write some of {', '.join(MECHANISMS)}"
    if "PLAIN" in security.sasl_enabled_mechanisms and "PLAIN" not in security.jaas:
        name = security.setting_name("sasl.jaas.config", "PLAIN")
        yield f"{name}: not set; PLAIN takes its users from there"


def _inter_broker(config: "BrokerConfig", endpoints: Sequence[Endpoint]) -> Iterator[str]:
    named, wanted = config.inter_broker_listener_name, config.security_inter_broker_protocol
    meant = [item.name for item in endpoints if item.name == (named or "").upper()]
    if named is None:
        meant = [item.name for item in endpoints if item.protocol == wanted]
    if not meant:
        return  # said elsewhere
    security = config.security_of(meant[0])
    if not security.authenticated:
        return
    mechanism = config.sasl_mechanism_inter_broker_protocol
    if mechanism not in security.sasl_enabled_mechanisms:
        yield (
            f"sasl.mechanism.inter.broker.protocol: {mechanism} is not among the mechanisms of"
            f" {security.listener}: {', '.join(security.sasl_enabled_mechanisms)}"
        )
    elif mechanism not in security.jaas:
        name = security.setting_name("sasl.jaas.config", mechanism)
        yield f"{name}: not set; brokers take the name and password that they use from there"
