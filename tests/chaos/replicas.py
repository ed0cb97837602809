"""Whether all replicas of a partition hold the same bytes, once nothing is written any more.

Followers store what their leader stored, so logs that begin at the same offset are equal byte by byte,
however they are cut into segments. Looks at the brokers' directories; must not know how they came to be so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.chaos.history import Place
from tests.support.waiting import wait_until

_CHUNK = 1 << 20


def differences(logs: Mapping[int, Path], places: Iterable[Place]) -> list[str]:
    """In words. `logs`: log directories by broker. Raises AssertionError where lengths stay different."""
    return [text for place in places for text in _difference(logs, place)]


def _difference(logs: Mapping[int, Path], place: Place) -> Iterator[str]:
    def sizes() -> dict[int, int]:
        return {
            number: sum(path.stat().st_size for path in _segments(log, place)) for number, log in logs.items()
        }

    wait_until(lambda: len(set(sizes().values())) == 1, f"replicas of {place} as long as each other")
    digests = {number: _digest(log, place) for number, log in logs.items()}
    if len(set(digests.values())) > 1:
        yield f"{place}: {digests}"


def _segments(log: Path, place: Place) -> list[Path]:
    return sorted((log / str(place)).glob("*.log"))


def _digest(log: Path, place: Place) -> str:
    digest = hashlib.sha256()
    for path in _segments(log, place):
        with path.open("rb") as segment:
            while chunk := segment.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()[:16]
