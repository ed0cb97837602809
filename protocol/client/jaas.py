"""One login module out of a `sasl.jaas.config` text: `Module flag name="value" … ;` (Kafka's `JaasConfig`).

Owns the grammar only. Errors never repeat the text: it holds passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s=;"']+)|([=;]))""", re.DOTALL)
_FLAGS = ("required", "requisite", "sufficient", "optional")


class JaasError(ValueError):
    """The text is not one login module."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """`module` is the Java class's full name, for example …plain.PlainLoginModule."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        """The class without its package."""
        return self.module.rpartition(".")[2]


def parse_jaas(text: str) -> LoginModule:
    """Raises JaasError."""
    tokens = list(_tokens(text))
    if ("=", True) not in tokens and (";", True) not in tokens:
        raise JaasError('is not `Module required name="value";`')
    words = iter(tokens)
    module, _ = next(words, ("", False))
    flag, _ = next(words, ("", False))
    if flag.lower() not in _FLAGS:
        raise JaasError(f"needs one of {', '.join(_FLAGS)} after the login module")
    options: dict[str, str] = {}
    for name, sign in words:
        if (name, sign) == (";", True):
            if next(words, None) is not None:
                raise JaasError("has more than one login module")
            return LoginModule(module, options)
        equals, value = next(words, ("", False)), next(words, ("", True))
        if sign or equals != ("=", True) or value[1]:
            raise JaasError(f'option number {len(options) + 1} is not name="value"')
        options[name] = value[0]
    raise JaasError("does not end with a semicolon")


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Words and, with True, signs."""
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError("has a quote that does not end")
        position = match.end()
        double, single, word, sign = match.groups()
        if sign is not None:
            yield sign, True
        elif word is not None:
            yield word, False
        else:
            quoted = double if double is not None else single
            yield re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL), False
