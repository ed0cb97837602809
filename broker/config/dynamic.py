"""Broker settings that can be changed while brokers run (KIP-226): for one broker, or as default for all.

Owns which ones they are, what may be stored, and the settings in force once they are laid over those of the
start: own ← default for all ← start ← Kafka's default. Pure; where they are kept is `control.config_store`.
(Kafka: `DynamicBrokerConfig`.)
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from broker.config.broker_settings import BROKER_DEFINITIONS, BrokerConfig
from broker.config.definition import ConfigError, unknown
from broker.config.foreign import IGNORED, refused
from broker.config.security_settings import PREFIX
from broker.config.topic_settings import TOPIC_DEFINITIONS, broker_synonyms, topic_defaults

_OF_THE_BROKER: Final = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "producer.id.expiration.ms",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "unclean.last.replica.election.enable",
)
DYNAMIC: Final = frozenset(
    [*_OF_THE_BROKER, *(item.synonyms[0].name for item in TOPIC_DEFINITIONS.values() if item.synonyms)]
)
"""Defaults of topics under their finest unit, as in Kafka, and some of the broker's own."""

_SYNONYMS = broker_synonyms()


class NotDynamic(Exception):
    """Settings that only a start reads."""


@dataclass(frozen=True, slots=True)
class DynamicSettings:
    """Texts as they are stored."""

    own: Mapping[str, str] = dataclasses.field(default_factory=lambda: MappingProxyType({}))
    default: Mapping[str, str] = dataclasses.field(default_factory=lambda: MappingProxyType({}))


def check(settings: Mapping[str, str]) -> None:
    """Raises `NotDynamic` or ConfigError, naming all offenders."""
    errors = []
    fixed = []
    for name, text in settings.items():
        known = name in BROKER_DEFINITIONS or name in _SYNONYMS or name in IGNORED
        known = known or name.startswith(PREFIX) or refused(name) is not None
        if name in DYNAMIC:
            try:
                _parsed({name: text})
            except (ConfigError, ValueError) as error:
                errors.append(str(error))
        elif known:
            fixed.append(name)
        else:
            errors.append(unknown(name, sorted(DYNAMIC)))
    if fixed:
        raise NotDynamic(f"Cannot update these configs dynamically: {', '.join(sorted(fixed))}")
    if errors:
        raise ConfigError(errors)


def in_force(start: BrokerConfig, stored: DynamicSettings) -> BrokerConfig:
    """The settings of the start with the stored ones on top. Raises ConfigError, ValueError."""
    changed = {**stored.default, **stored.own}
    if not changed:
        return start
    return dataclasses.replace(
        start,
        topic_defaults=topic_defaults({**start.given, **changed}),
        **_parsed(changed),  # type: ignore[arg-type]
    )


def _parsed(settings: Mapping[str, str]) -> dict[str, object]:
    topic_defaults(settings)
    return {
        definition.attribute: definition.parse(text)
        for name, text in settings.items()
        if (definition := BROKER_DEFINITIONS.get(name)) is not None
    }
