"""Settings as DescribeConfigs shows them: values in force, where they come from, and what else there is.

Pure. (Kafka: `kafka.server.ConfigHelper`; KIP-226 for sources and synonyms.)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import dropwhile
from typing import NamedTuple

from broker.config.broker_settings import BROKER_DEFINITIONS, BrokerConfig
from broker.config.definition import Definition, Synonym
from broker.config.dynamic import DYNAMIC, DynamicSettings
from broker.config.kinds import Kind, render
from broker.config.topic_settings import MIRROR_SOURCE, TOPIC_DEFINITIONS, broker_synonyms


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
    """A setting in force. `origins` are Kafka's synonyms, the strongest first."""

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
    """All settings of a topic with these overrides. `config` is that of the broker's start.

    The one that Kafka does not have is shown where it is set, read-only: nobody is to copy it.
    """
    for definition in TOPIC_DEFINITIONS.values():
        if definition.name == MIRROR_SOURCE and MIRROR_SOURCE not in overrides:
            continue
        family = list(_family_origins(definition, config, stored))
        value = _in_topics_unit(definition, family[0]) if family else render(definition.default)
        origins = _from(definition.synonyms[0].name, family) if family else []
        if definition.name in overrides:
            value = overrides[definition.name]
            origins.insert(0, Origin(definition.name, value, Source.TOPIC))
        yield _entry(definition, definition.kind, value, origins, read_only=definition.name == MIRROR_SOURCE)


def broker_entries(config: BrokerConfig, stored: DynamicSettings = _NOTHING_STORED) -> Iterator[Entry]:
    """All settings of a broker, topic defaults included. `config` is that of its start."""
    for definition in BROKER_DEFINITIONS.values():
        name, value = definition.name, getattr(config, definition.attribute)
        origins = [
            Origin(name, texts[name], source) for source, texts in _given(config, stored)[:2] if name in texts
        ]
        if name in config.given or value != definition.default:
            origins.append(Origin(name, render(value), Source.BROKER_STATIC))
        if not _is_unset(definition.default):
            origins.append(Origin(name, render(definition.default), Source.DEFAULT))
        shown = origins[0].value if origins else None
        yield _entry(definition, definition.kind, shown, origins, read_only=name not in DYNAMIC)
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
        origins = [Origin(name, text, Source.BROKER_DYNAMIC_DEFAULT)]
        yield _entry(definition, definition.kind, text, origins, read_only=False)


def _family_origins(
    definition: Definition, config: BrokerConfig, stored: DynamicSettings
) -> Iterator[Origin]:
    """Every value that the broker settings behind a topic setting have, the one that counts first.

    Empty where no broker setting is behind it.
    """
    for source, texts in _given(config, stored):
        for synonym in definition.synonyms:
            if synonym.name in texts:
                yield Origin(synonym.name, texts[synonym.name], source)
    if definition.synonyms:
        coarsest = definition.synonyms[-1]
        default = definition.default if coarsest.default is None else coarsest.default
        yield Origin(coarsest.name, render(default), Source.DEFAULT)


def _from(name: str, origins: Iterable[Origin]) -> list[Origin]:
    """Kafka lists synonyms from the first that bears the very name, and so none where only another unit is
    set: then the source is "default".
    """
    return list(dropwhile(lambda origin: origin.name != name, origins))


def _synonym_entry(
    config: BrokerConfig, definition: Definition, synonym: Synonym, stored: DynamicSettings
) -> Entry:
    own = Definition(synonym.name, synonym.kind, None, definition.doc)
    origins = _from(synonym.name, _family_origins(definition, config, stored))
    value = next((origin.value for origin in origins if origin.name == synonym.name), None)
    return _entry(own, synonym.kind, value, origins, read_only=synonym.name not in DYNAMIC)


def _is_unset(default: object) -> bool:
    """Kafka's null: it has no default and is not listed. (An empty text is one.)"""
    return default is None or default == ()


def _entry(
    definition: Definition, kind: Kind, value: str | None, origins: Sequence[Origin], *, read_only: bool
) -> Entry:
    return Entry(
        definition.name,
        None if definition.sensitive else value,
        origins[0].source if origins else Source.DEFAULT,
        kind,
        read_only,
        definition.sensitive,
        tuple(origins),
        definition.doc,
    )


def _in_topics_unit(definition: Definition, origin: Origin) -> str | None:
    """Value of a topic setting from a broker setting that may have another unit (hours for ms)."""
    synonym = next(item for item in definition.synonyms if item.name == origin.name)
    if synonym.factor == 1 or origin.value is None:
        return origin.value
    number = int(origin.value)
    return str(number * synonym.factor if number > 0 else number)
