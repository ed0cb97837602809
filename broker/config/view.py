"""Settings as DescribeConfigs shows them: values in force, where they come from, and what else there is.

Pure. (Kafka: `kafka.server.ConfigHelper`; KIP-226 for sources and synonyms.)
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from broker.config.broker_settings import BROKER_DEFINITIONS, BrokerConfig
from broker.config.definition import Definition, Synonym
from broker.config.dynamic import DYNAMIC, DynamicSettings
from broker.config.kinds import Kind, render
from broker.config.topic_settings import TOPIC_DEFINITIONS, broker_synonyms


class Source(IntEnum):
    """Where a value comes from; the numbers are DescribeConfigs'."""

    TOPIC = 1
    BROKER_DYNAMIC = 2
    BROKER_DYNAMIC_DEFAULT = 3
    BROKER_STATIC = 4
    DEFAULT = 5


class Origin(NamedTuple):
    """One place that gives a setting a value."""

    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    """A setting in force. `origins` start with the one that counts."""

    name: str
    value: str | None
    source: Source
    kind: Kind
    read_only: bool
    sensitive: bool
    origins: tuple[Origin, ...]
    doc: str


_NOTHING_STORED = DynamicSettings()


def _given(config: BrokerConfig, stored: DynamicSettings) -> tuple[tuple[Source, Mapping[str, str]], ...]:
    """Texts of broker settings by where they come from, the strongest first."""
    return (
        (Source.BROKER_DYNAMIC, stored.own),
        (Source.BROKER_DYNAMIC_DEFAULT, stored.default),
        (Source.BROKER_STATIC, config.given),
    )


def topic_entries(
    config: BrokerConfig, overrides: Mapping[str, str], stored: DynamicSettings = _NOTHING_STORED
) -> Iterator[Entry]:
    """All settings of a topic with these overrides. `config` is that of the broker's start."""
    for definition in TOPIC_DEFINITIONS.values():
        origins = tuple(_topic_origins(definition, config, overrides, stored))
        yield _entry(definition, definition.kind, origins, read_only=False)


def _topic_origins(
    definition: Definition, config: BrokerConfig, overrides: Mapping[str, str], stored: DynamicSettings
) -> Iterator[Origin]:
    if definition.name in overrides:
        yield Origin(definition.name, overrides[definition.name], Source.TOPIC)
    for source, texts in _given(config, stored):
        for synonym in definition.synonyms:
            if synonym.name in texts:
                yield Origin(synonym.name, texts[synonym.name], source)
    name = definition.synonyms[-1].name if definition.synonyms else definition.name
    default = definition.default
    if definition.synonyms and definition.synonyms[-1].default is not None:
        default = definition.synonyms[-1].default
    yield Origin(name, render(default), Source.DEFAULT)


def broker_entries(config: BrokerConfig, stored: DynamicSettings = _NOTHING_STORED) -> Iterator[Entry]:
    """All settings of a broker, topic defaults included. `config` is that of its start."""
    for definition in BROKER_DEFINITIONS.values():
        name, value = definition.name, getattr(config, definition.attribute)
        origins = [
            Origin(name, texts[name], source) for source, texts in _given(config, stored)[:2] if name in texts
        ]
        if name in config.given or value != definition.default:
            origins.append(Origin(name, render(value), Source.BROKER_STATIC))
        origins.append(Origin(name, render(definition.default), Source.DEFAULT))
        yield _entry(definition, definition.kind, tuple(origins), read_only=name not in DYNAMIC)
    for name, (definition, synonym) in broker_synonyms().items():
        if name not in BROKER_DEFINITIONS:
            yield _synonym_entry(config, definition, synonym, stored)


def default_entries(stored: DynamicSettings) -> Iterator[Entry]:
    """What is stored as default for all brokers; nothing else has a value there."""
    for name, text in stored.default.items():
        definition = BROKER_DEFINITIONS.get(name)
        if definition is None:
            topic_setting, synonym = broker_synonyms()[name]
            definition = Definition(name, synonym.kind, None, topic_setting.doc)
        origins = (Origin(name, text, Source.BROKER_DYNAMIC_DEFAULT),)
        yield _entry(definition, definition.kind, origins, read_only=False)


def _synonym_entry(
    config: BrokerConfig, definition: Definition, synonym: Synonym, stored: DynamicSettings
) -> Entry:
    own = Definition(synonym.name, synonym.kind, None, definition.doc)
    only = len(definition.synonyms) == 1
    default = render(definition.default if only else synonym.default)
    origins = [
        Origin(synonym.name, texts[synonym.name], source)
        for source, texts in _given(config, stored)
        if synonym.name in texts
    ]
    origins.append(Origin(synonym.name, default, Source.DEFAULT))
    return _entry(own, synonym.kind, tuple(origins), read_only=synonym.name not in DYNAMIC)


def _entry(definition: Definition, kind: Kind, origins: tuple[Origin, ...], *, read_only: bool) -> Entry:
    first = origins[0]
    value = first.value
    if first.name != definition.name:
        value = _in_own_unit(definition, first)
    return Entry(
        definition.name,
        None if definition.sensitive else value,
        first.source,
        kind,
        read_only,
        definition.sensitive,
        origins,
        definition.doc,
    )


def _in_own_unit(definition: Definition, origin: Origin) -> str | None:
    """Value of a topic setting from a broker setting that may have another unit (hours for ms)."""
    synonym = next(item for item in definition.synonyms if item.name == origin.name)
    if synonym.factor == 1 or origin.value is None:
        return origin.value
    number = int(origin.value)
    return str(number * synonym.factor if number > 0 else number)
