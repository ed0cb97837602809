"""Gathers the settings of a start: a server.properties file, then single options, then `NAME=VALUE` texts.

Later ones win. Must not know what settings mean.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from broker.config.definition import ConfigError
from broker.config.load import read_properties


class Given(NamedTuple):
    """Texts by setting, and where each came from."""

    properties: Mapping[str, str]
    origins: Mapping[str, str]


def gather(
    *,
    defaults: Mapping[str, str],
    file: Path | str | None = None,
    options: Mapping[str, tuple[str, str | None]],
    assignments: Iterable[str] = (),
) -> Given:
    """`options` is setting -> (name of the option, its text or None). Raises ConfigError."""
    properties = dict(defaults)
    origins: dict[str, str] = {}
    if file is not None:
        texts, places = read_properties(file)
        properties |= texts
        origins |= places
    for name, (option, text) in options.items():
        if text is not None:
            properties[name] = text
            origins[name] = option
    errors = []
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name.strip():
            errors.append(f"--set {assignment}: write NAME=VALUE")
            continue
        properties[name.strip()] = text
        origins[name.strip()] = "--set"
    if errors:
        raise ConfigError(errors)
    return Given(properties, origins)
