"""What is known about one setting, and the dataclass field that carries it.

Settings classes are frozen dataclasses whose fields are made by `setting(...)`: the attribute gives code a
type, the definition Kafka's name, default, limits and text for DescribeConfigs. Must not know any setting.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from broker.config.kinds import Check, Kind, parse, render

_KEY = "setting"


class ConfigError(Exception):
    """One or more settings are wrong. `errors` is one line for each, naming the setting."""

    def __init__(self, errors: Iterable[str]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(self.errors))


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker setting that gives a topic setting its default: value times `factor`."""

    name: str
    kind: Kind
    factor: int = 1
    default: object = None


@dataclass(frozen=True, slots=True)
class Definition:
    """One setting: Kafka's name, type, default, limit, and what it does in one or two sentences."""

    name: str
    kind: Kind
    default: object
    doc: str
    check: Check | None = None
    synonyms: tuple[Synonym, ...] = ()

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    @property
    def sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD

    def parse(self, text: str) -> object:
        """Value of `text`; raises ValueError whose message names the setting."""
        try:
            value = parse(self.kind, text)
            complaint = self.check(value) if self.check is not None else None
        except ValueError as error:
            complaint = str(error)
        if complaint is not None:
            raise ValueError(f"{self.name}: {complaint}")
        return value

    def render(self, value: object) -> str | None:
        return render(value)


def setting(
    name: str,
    kind: Kind,
    default: object,
    doc: str,
    check: Check | None = None,
    synonyms: tuple[Synonym, ...] = (),
) -> Any:
    """A dataclass field for the setting `name`; the attribute is the name with `_` for `.`."""
    definition = Definition(name, kind, default, doc, check, synonyms)
    return dataclasses.field(default=default, metadata={_KEY: definition})


def definitions(settings_class: type[Any]) -> Mapping[str, Definition]:
    """The settings of a settings class, by Kafka's name, in the order of their declaration."""
    fields = dataclasses.fields(settings_class)
    return {item.metadata[_KEY].name: item.metadata[_KEY] for item in fields if _KEY in item.metadata}


def unknown(name: str, known: Iterable[str]) -> str:
    """Error text for an unknown setting, with the closest known name."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{name}: unknown setting{hint}"
