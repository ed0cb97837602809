"""Secrets of Kubernetes, by name and key: out of the file itself, or out of files as Kubernetes mounts them.

Owns where they are looked for: `kind: Secret` beside what names them, else DIRECTORY/NAME/KEY. The directory
is that of `ISTHMUS_SECRETS`, else `secrets` beside the file. What is missing is named with both; what a
Secret holds is never part of an error.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from replicator.mirrormaker.providers import ProviderError

VARIABLE: Final = "ISTHMUS_SECRETS"


class Secrets:
    """Of the objects of one file, and of those that are mounted."""

    def __init__(self, file: Path, objects: Iterable[Mapping[str, Any]] = ()) -> None:
        self._folder = Path(os.environ.get(VARIABLE) or file.parent / "secrets")
        self._given: dict[str, dict[str, Any]] = {}
        """By name; texts of `stringData` beside undecoded ones of `data`, which are bytes."""
        for one in objects:
            coded = {key: text.encode() for key, text in _texts(one, "data").items()}
            clear = _texts(one, "stringData")  # as in Kubernetes it counts before the other
            self._given[_texts(one, "metadata").get("name", "")] = coded | clear

    def read(self, path: str, key: str) -> str:
        """`path`: NAMESPACE/NAME, or NAME; the namespace is not looked at. A config provider. Raises
        ProviderError."""
        name = path.rpartition("/")[2]
        try:
            return self._bytes(name, key).decode()
        except UnicodeDecodeError:
            raise ProviderError(f"key {key} of Secret {name} is no text") from None

    def names(self, name: str, pattern: str) -> list[str]:
        """Keys of a Secret that a shell pattern takes. Raises ProviderError when there is none."""
        if name in self._given:
            there = list(self._given[name])
        else:
            try:
                files = (self._folder / name).iterdir()
                there = [file.name for file in files if not file.name.startswith("..") and file.is_file()]
            except OSError as error:
                raise self._missing(name, "", str(error.strerror)) from None
        found = sorted(key for key in there if fnmatchcase(key, pattern))
        if not found:
            has = ", ".join(sorted(there)) or "nothing"
            raise ProviderError(f"Secret {name} has no key like {pattern}: it has {has}")
        return found

    def _bytes(self, name: str, key: str) -> bytes:
        if name not in self._given:
            try:
                return (self._folder / name / key).read_bytes()
            except OSError as error:
                raise self._missing(name, key, str(error.strerror)) from None
        value = self._given[name].get(key)
        if value is None:
            has = ", ".join(sorted(self._given[name])) or "nothing"
            raise ProviderError(f"Secret {name} of this file has no key {key}: it has {has}")
        if isinstance(value, str):
            return value.encode()
        try:
            return base64.b64decode(b"".join(value.split()), validate=True)
        except binascii.Error:
            raise ProviderError(
                f"key {key} of Secret {name} is not base64 (clear text stands in stringData)"
            ) from None

    def _missing(self, name: str, key: str, why: str) -> ProviderError:
        what = f"key {key} of Secret {name}" if key else f"Secret {name}"
        return ProviderError(
            f"{what} is not there: {self._folder / name / key}: {why}. Mount the Secret at"
            f" {self._folder / name} ({VARIABLE} names another directory for all), or add it to this file"
            f" (kubectl get secret {name} -o yaml)"
        )


def _texts(one: Mapping[str, Any], field: str) -> dict[str, str]:
    inner = one.get(field)
    return {str(key): str(text) for key, text in inner.items()} if isinstance(inner, Mapping) else {}
