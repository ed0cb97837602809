"""Which topic names may exist, and which topics belong to the broker itself.

Pure rules. (Kafka: `org.apache.kafka.common.internals.Topic`.)
"""

import re
from collections.abc import Iterable

from broker.control.metadata_cache import INTERNAL_TOPICS

MAX_NAME_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def wrong_name(name: str) -> str | None:
    """What is wrong with a topic name, or None."""
    if not name:
        return "a topic name cannot be empty"
    if name in (".", ".."):
        return f"{name!r} cannot be a topic name"
    if len(name) > MAX_NAME_LENGTH:
        return f"topic name has {len(name)} characters, the limit is {MAX_NAME_LENGTH}: {name[:40]}…"
    if _LEGAL.fullmatch(name) is None:
        return f"topic name {name!r} may only hold letters, digits, '.', '_' and '-' of ASCII"
    return None


def collision(name: str, existing: Iterable[str]) -> str | None:
    """An existing topic whose metrics would have the same names ('.' and '_' become one), or None."""
    flat = name.replace(".", "_")
    return next((other for other in existing if other != name and other.replace(".", "_") == flat), None)
