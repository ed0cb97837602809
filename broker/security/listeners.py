"""From a listener's settings to what serves it: TLS context, mechanisms, and the brokers' own identity.

Reads key files. Mistakes are ConfigError, named by setting, without secrets.
"""

from __future__ import annotations

import ssl as tls
from collections.abc import Callable, Mapping
from functools import partial

from broker.config import BrokerConfig, ConfigError
from broker.config.security_settings import ListenerSecurity
from broker.security import plain
from broker.security.mechanisms import NewServer
from broker.security.plain import PlainServer, users_of
from broker.security.scram import ScramServer
from protocol.client import ClientSecurity
from protocol.client.jaas import JaasError, parse_jaas
from protocol.client.properties import sasl_from_jaas
from protocol.client.security import SecuritySettingsError
from protocol.client.tls import TlsSettings, TlsSettingsError, client_context, server_context
from protocol.scram import MECHANISMS, Credential

FindCredential = Callable[[str, str], Credential | None]
"""The credential of (mechanism, user)."""


def tls_context(security: ListenerSecurity) -> tls.SSLContext | None:
    """None for listeners that do not encrypt. Raises ConfigError."""
    if not security.encrypted:
        return None
    try:
        return server_context(_tls(security), security.ssl_client_auth)
    except TlsSettingsError as error:
        raise ConfigError([f"listener {security.listener}: {error}"]) from error


def mechanisms(security: ListenerSecurity, find: FindCredential) -> dict[str, NewServer]:
    """What makes the server's side of each enabled mechanism; nothing without SASL. Raises ConfigError."""
    made: dict[str, NewServer] = {}
    for name in security.sasl_enabled_mechanisms if security.authenticated else ():
        if name in MECHANISMS:
            made[name] = partial(ScramServer, MECHANISMS[name], partial(find, name))
        elif name == plain.MECHANISM:
            made[name] = partial(PlainServer, _plain_users(security))
    return made


def session_times_ms(security: ListenerSecurity) -> dict[str, int]:
    """`connections.max.reauth.ms` by mechanism."""
    general = security.connections_max_reauth_ms
    return {name: security.max_reauth_ms.get(name, general) for name in security.sasl_enabled_mechanisms}


def inter_broker_client(config: BrokerConfig) -> ClientSecurity:
    """How this broker speaks to others, and to itself. Raises ConfigError."""
    security = config.security_of(config.inter_broker_listener)
    context = sasl = None
    try:
        if security.encrypted:
            check_host = security.ssl_endpoint_identification_algorithm == "https"
            context = client_context(_tls(security), check_host=check_host)
        if security.authenticated:
            mechanism = config.sasl_mechanism_inter_broker_protocol
            name = security.setting_name("sasl.jaas.config", mechanism)
            sasl = sasl_from_jaas(mechanism, security.jaas[mechanism], name)
    except (TlsSettingsError, SecuritySettingsError) as error:
        raise ConfigError([f"listener {security.listener}: {error}"]) from error
    return ClientSecurity(context, sasl)


def _plain_users(security: ListenerSecurity) -> Mapping[str, str]:
    name = security.setting_name("sasl.jaas.config", plain.MECHANISM)
    try:
        return users_of(parse_jaas(security.jaas[plain.MECHANISM]).options)
    except JaasError as error:
        raise ConfigError([f"{name}: {error}"]) from error


def _tls(security: ListenerSecurity) -> TlsSettings:
    fields = TlsSettings.__dataclass_fields__
    return TlsSettings(**{name: getattr(security, f"ssl_{name}") for name in fields})
