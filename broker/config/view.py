"""Settings as DescribeConfigs shows them: values in force, where they come from, and what else there is.

Pure. (Kafka: `kafka.server.ConfigHelper`; KIP-226 for sources and synonyms.)
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from broker.config.broker_settings import BROKER_DEFINITIONS, BrokerConfig
from broker.config.definition import Definition, Synonym
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


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[Entry]:
    """All settings of a topic with these overrides."""
    for definition in TOPIC_DEFINITIONS.values():
        origins = tuple(_topic_origins(definition, config, overrides))
        yield _entry(definition, definition.kind, origins, read_only=False)


def _topic_origins(
    definition: Definition, config: BrokerConfig, overrides: Mapping[str, str]
) -> Iterator[Origin]:
    if definition.name in overrides:
        yield Origin(definition.name, overrides[definition.name], Source.TOPIC)
    for synonym in definition.synonyms:
        if synonym.name in config.given:
            yield Origin(synonym.name, config.given[synonym.name], Source.BROKER_STATIC)
    name = definition.synonyms[-1].name if definition.synonyms else definition.name
    default = definition.default
    if definition.synonyms and definition.synonyms[-1].default is not None:
        default = definition.synonyms[-1].default
    yield Origin(name, render(default), Source.DEFAULT)


def broker_entries(config: BrokerConfig) -> Iterator[Entry]:
    """All settings of a broker, topic defaults included. None can be changed while it runs."""
    for definition in BROKER_DEFINITIONS.values():
        value = getattr(config, definition.attribute)
        origins = [Origin(definition.name, render(value), Source.BROKER_STATIC)]
        if definition.name not in config.given and value == definition.default:
            origins.clear()
        origins.append(Origin(definition.name, render(definition.default), Source.DEFAULT))
        yield _entry(definition, definition.kind, tuple(origins), read_only=True)
    for name, (definition, synonym) in broker_synonyms().items():
        if name not in BROKER_DEFINITIONS:
            yield _synonym_entry(config, definition, synonym)


def _synonym_entry(config: BrokerConfig, definition: Definition, synonym: Synonym) -> Entry:
    own = Definition(synonym.name, synonym.kind, None, definition.doc)
    only = len(definition.synonyms) == 1
    default = render(definition.default if only else synonym.default)
    origins = [Origin(synonym.name, default, Source.DEFAULT)]
    if synonym.name in config.given:
        origins.insert(0, Origin(synonym.name, config.given[synonym.name], Source.BROKER_STATIC))
    return _entry(own, synonym.kind, tuple(origins), read_only=True)


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
