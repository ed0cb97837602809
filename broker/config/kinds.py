"""The types of Kafka's settings: text to value as Kafka's ConfigDef parses it, and back.

Booleans are only `true` and `false` (any case), lists are separated by commas and trimmed, whole numbers must
fit their Java type. Must not know any setting.
"""

import re
from collections.abc import Callable
from enum import IntEnum


class Kind(IntEnum):
    """Type of a setting; the numbers are those of DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_SERVER = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+)(?::(\d{1,5}))?")
_BITS = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}


def parse(kind: Kind, text: str) -> object:
    """Value of `text`; raises ValueError with the reason, without the setting's name."""
    text = text.strip()
    if kind is Kind.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"must be true or false, not {text!r}")
        return text.lower() == "true"
    if kind in _BITS:
        return _whole_number(text, _BITS[kind])
    if kind is Kind.DOUBLE:
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"must be a number, not {text!r}") from None
    if kind is Kind.LIST:
        return tuple(item.strip() for item in text.split(",")) if text else ()
    return text


def render(value: object) -> str | None:
    """Text of a value as Kafka shows it; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    if isinstance(value, float):
        return str(value).replace("e+", "E").replace("e", "E")
    return str(value)


def _whole_number(text: str, bits: int) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"must be a whole number, not {text!r}")
    number = int(text)
    limit = 1 << (bits - 1)
    if not -limit <= number < limit:
        raise ValueError(f"must fit {bits} bits ({-limit} to {limit - 1}), not {text}")
    return number


Check = Callable[[object], str | None]
"""Returns what is wrong with a value, or None."""


def at_least(low: float) -> Check:
    def check(value: object) -> str | None:
        assert isinstance(value, int | float)
        return None if value >= low else f"must be at least {low}, not {value}"

    return check


def between(low: float, high: float) -> Check:
    def check(value: object) -> str | None:
        assert isinstance(value, int | float)
        return None if low <= value <= high else f"must be between {low} and {high}, not {value}"

    return check


def one_of(*allowed: str) -> Check:
    def check(value: object) -> str | None:
        return None if value in allowed else f"must be one of {', '.join(allowed)}, not {value!r}"

    return check


def servers(value: object) -> str | None:
    """`host[:port],host[:port][/chroot]`, as zookeeper.connect has it."""
    hosts = str(value).partition("/")[0]
    for server in hosts.split(","):
        match = _SERVER.fullmatch(server.strip())
        if match is None or not 0 < int(match[2] or 1) <= 65535:
            return f"must be HOST:PORT[,HOST:PORT…][/chroot], not {value!r}"
    return None


def split_servers(connect: str) -> tuple[str, ...]:
    """The servers of a connection string, without its chroot."""
    hosts = connect.partition("/")[0].split(",")
    return tuple(host.strip() for host in hosts if host.strip())


def named(value: object) -> str | None:
    return None if str(value).strip() else "must be a name: leave the setting out where there is none"


def directories(value: object) -> str | None:
    """One path or more: an empty one would be the working directory (KIP-1161)."""
    paths = [value] if isinstance(value, str) else value
    assert isinstance(paths, list | tuple)
    if not paths or "" in paths:
        return f"must name a directory between commas, not {','.join(paths)!r}"
    if len({path.rstrip("/") for path in paths}) != len(paths):
        return f"names a directory twice: {','.join(paths)}"
    return None


def each_of(*allowed: str) -> Check:
    def check(value: object) -> str | None:
        assert isinstance(value, tuple)
        if len(set(value)) != len(value):
            return f"names something twice: {','.join(value)}"
        wrong = [item for item in value if item not in allowed]
        return f"may only hold {', '.join(allowed)}, not {wrong[0]!r}" if wrong else None

    return check
