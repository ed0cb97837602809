"""Kafka's config providers: `${file:/path:key}`, `${env:NAME}`, `${directory:/path:name}` (KIP-297, KIP-887).

Owns finding references in a text and reading what they name. Names of providers are what `config.providers`
declares; `file`, `env` and `directory` are known without being declared, and so are Strimzi's, where a file
of Connect is read (`kubernetes_secrets`). A secret is never part of an error.
What a provider may read is limited as in Kafka: `param.allowed.paths`, `param.allowlist.pattern` (KIP-993).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from protocol.properties_text import PropertiesError, as_mapping, read_properties_file

_REFERENCE = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")

Provider = Callable[[str, str], str]
"""Path and key to the text."""


class ProviderError(ValueError):
    """A reference leads nowhere; the message names it."""


def _file(path: str, key: str) -> str:
    try:
        values = as_mapping(read_properties_file(path))
    except PropertiesError as error:
        raise ProviderError(str(error)) from None
    if key not in values:
        raise ProviderError(f"{path} has no '{key}'")
    return values[key]


def _environment(path: str, key: str) -> str:
    value = os.environ.get(key)
    if value is None:
        raise ProviderError(f"the environment variable {key} is not set")
    return value


def _directory(path: str, key: str) -> str:
    try:
        return (Path(path) / key).read_text(encoding="utf-8")
    except OSError as error:
        raise ProviderError(f"{path}/{key}: {error.strerror}") from None


_BY_CLASS: Mapping[str, Provider] = {
    "FileConfigProvider": _file,
    "EnvVarConfigProvider": _environment,
    "DirectoryConfigProvider": _directory,
}
_PATHS, _NAMES = "allowed.paths", "allowlist.pattern"
_BY_NAME: Mapping[str, Provider] = {"file": _file, "env": _environment, "directory": _directory}


def strimzis(secrets: Provider) -> dict[str, Provider]:
    """What Strimzi declares, and its class. `secrets`: a Secret's `NAMESPACE/NAME` and key to text."""
    return {
        "strimzienv": _environment,
        "strimzifile": _file,
        "strimzidir": _directory,
        "strimzisecrets": secrets,
        "KubernetesSecretConfigProvider": secrets,
    }


def declared(
    settings: Mapping[str, str], more: Mapping[str, Provider]
) -> tuple[dict[str, Provider], list[tuple[str, str]]]:
    """Providers by name, and (setting, problem) for each that cannot be used here. `more`: by name or
    class."""
    found = dict(_BY_NAME) | dict(more)
    by_class = dict(_BY_CLASS) | dict(more)
    problems: list[tuple[str, str]] = []
    for name in filter(None, re.split(r"\s*,\s*", settings.get("config.providers", "").strip())):
        setting = f"config.providers.{name}.class"
        java = settings.get(setting)
        provider = by_class.get((java or "").rpartition(".")[2])
        if provider is not None:
            try:
                found[name] = _limited(provider, f"config.providers.{name}.param.", settings)
            except re.error as error:
                problems.append((f"config.providers.{name}.param.{_NAMES}", f"is no pattern: {error}"))
        elif java is None:
            problems.append(("config.providers", f"names '{name}', but {setting} is not set"))
        else:
            offered = ", ".join(_BY_CLASS)
            problems.append((setting, f"{java} is a Java class, which cannot run here; there are {offered}"))
    return found, problems


def _limited(provider: Provider, prefix: str, settings: Mapping[str, str]) -> Provider:
    """What may be read by it. Raises re.error."""
    paths, names = settings.get(prefix + _PATHS, ""), re.compile(settings.get(prefix + _NAMES, ".*"))
    allowed = [Path(os.path.normpath(path)) for path in filter(None, re.split(r"\s*,\s*", paths.strip()))]

    def limited(path: str, key: str) -> str:
        if provider is _environment:
            if names.fullmatch(key) is None:
                raise ProviderError(f"{key} is not among {prefix}{_NAMES}")
        elif allowed and not any(Path(os.path.normpath(path)).is_relative_to(one) for one in allowed):
            raise ProviderError(f"{path} is outside of {prefix}{_PATHS}")
        return provider(path, key)

    return limited


def resolve(text: str, providers: Mapping[str, Provider]) -> str:
    """`text` with all references replaced; one with an unknown provider stays, as in Kafka.

    Raises ProviderError.
    """

    def replaced(match: re.Match[str]) -> str:
        provider = providers.get(match[1])
        return match[0] if provider is None else provider(match[3] or "", match[4])

    return _REFERENCE.sub(replaced, text)


def unknown(text: str, providers: Mapping[str, Provider]) -> list[str]:
    """Names of providers that `resolve` leaves as they are."""
    return sorted({match[1] for match in _REFERENCE.finditer(text)} - providers.keys())
