"""From texts (server.properties, `--set name=value`) to a BrokerConfig, with every mistake named at once."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from broker.config.broker_settings import BROKER_DEFINITIONS, BrokerConfig
from broker.config.definition import ConfigError, unknown
from broker.config.foreign import IGNORED, refused
from broker.config.kinds import split_servers
from broker.config.listeners import Endpoint
from broker.config.security_rules import security_contradictions
from broker.config.security_settings import PREFIX, check_listener_setting
from broker.config.topic_settings import broker_synonyms, topic_defaults
from protocol.properties_text import PropertiesError, as_mapping, read_properties_file

_log = logging.getLogger("isthmus.broker")
_SYNONYMS = broker_synonyms()


def load(properties: Mapping[str, str], origins: Mapping[str, str] | None = None) -> BrokerConfig:
    """Settings from texts. `origins` says where each came from, for errors. Raises ConfigError."""
    values: dict[str, object] = {}
    errors: list[str] = []
    for name, text in properties.items():
        try:
            values |= _value(name, text)
        except (ValueError, ConfigError) as error:
            place = f"{origins[name]}: " if origins and name in origins else ""
            errors.append(f"{place}{error}")
    if errors:
        raise ConfigError(errors)
    config = BrokerConfig(
        **values,  # type: ignore[arg-type]
        topic_defaults=topic_defaults(properties),
        given=MappingProxyType(dict(properties)),
    )
    errors.extend(_contradictions(config))
    if errors:
        raise ConfigError(errors)
    for name in properties:
        if name in IGNORED:
            _log.warning("%s has no effect: %s", name, IGNORED[name])
    return config


def _value(name: str, text: str) -> dict[str, object]:
    """The attribute that a setting gives, if it gives one. Raises ValueError or ConfigError naming it."""
    values: dict[str, object] = {}
    definition = BROKER_DEFINITIONS.get(name)
    if definition is not None:
        values[definition.attribute] = definition.parse(text)
    if name in _SYNONYMS:
        topic_defaults({name: text})
    if definition is not None or name in _SYNONYMS:
        return values
    if name.startswith(PREFIX):
        check_listener_setting(name, text)
        return values
    if (why := refused(name)) is not None:
        raise ValueError(f"{name}: {why}")
    if name not in IGNORED:
        raise ValueError(unknown(name, [*BROKER_DEFINITIONS, *_SYNONYMS]))
    return values


def check_setting(name: str, text: str) -> None:
    """Whether a start would take this setting, seen alone. Raises ValueError or ConfigError naming it."""
    _value(name, text)


def _contradictions(config: BrokerConfig) -> Iterable[str]:
    """What is wrong between settings that are each right."""
    try:
        endpoints = config.endpoints
    except ValueError as error:
        yield f"listeners: {error}"
        return
    try:
        advertised = config.advertised_endpoints
    except ValueError as error:
        yield f"advertised.listeners: {error}"
        return
    yield from _listener_contradictions(config, endpoints, advertised)
    strange = set(config.zookeeper_preferred) - set(split_servers(config.zookeeper_connect or ""))
    if strange:
        yield f"zookeeper.connect.preferred: {', '.join(sorted(strange))} is not among zookeeper.connect"
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        yield "group.min.session.timeout.ms: must not be above group.max.session.timeout.ms"
    if config.broker_id > config.reserved_broker_max_id:
        yield f"broker.id: must not be above reserved.broker.max.id ({config.reserved_broker_max_id})"


def _listener_contradictions(
    config: BrokerConfig, endpoints: Sequence[Endpoint], advertised: Sequence[Endpoint]
) -> Iterable[str]:
    names = {endpoint.name for endpoint in endpoints}
    for endpoint in advertised:
        if endpoint.name not in names:
            yield f"advertised.listeners: {endpoint} is not among the listeners {', '.join(sorted(names))}"
    named = config.inter_broker_listener_name
    if named is not None and named.upper() not in names:
        yield f"inter.broker.listener.name: {named} is not among the listeners"
    if named is None and all(item.protocol != config.security_inter_broker_protocol for item in endpoints):
        yield f"security.inter.broker.protocol: no listener has {config.security_inter_broker_protocol}"
    yield from security_contradictions(config, endpoints)


def read_properties(path: Path | str) -> tuple[dict[str, str], dict[str, str]]:
    """A Java .properties file: texts by name, and `file:line` by name. Raises ConfigError."""
    try:
        found = read_properties_file(path)
    except PropertiesError as error:
        raise ConfigError([str(error)]) from error
    return as_mapping(found), {item.name: f"{path}:{item.line}" for item in found}
