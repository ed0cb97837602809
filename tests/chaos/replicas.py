"""Whether all replicas of a partition hold the same bytes, once nothing is written any more.

Followers store what their leader stored, so logs that begin at the same offset are equal byte by byte,
however they are cut into segments. Looks at the brokers' directories; must not know how they came to be so.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.chaos.history import Place
from tests.support.waiting import wait_until

_CHUNK = 1 << 20
_BEHIND_S = 30.0


def differences(logs: Mapping[int, Path], places: Iterable[Place]) -> list[str]:
    """In words; `logs` are log directories by broker. Waits for replicas that are behind, but not for ever:
    what is behind is no difference as long as it is the beginning of the others."""
    return [text for place in places for text in _difference(logs, place)]


def _difference(logs: Mapping[int, Path], place: Place) -> Iterator[str]:
    def sizes() -> dict[int, int]:
        return {
            number: sum(path.stat().st_size for path in _segments(log, place)) for number, log in logs.items()
        }

    with contextlib.suppress(AssertionError):
        wait_until(
            lambda: len(set(sizes().values())) == 1, "replicas as long as each other", bound_s=_BEHIND_S
        )
    shortest = min(sizes().values())
    digests = {number: _digest(log, place, shortest) for number, log in logs.items()}
    if len(set(digests.values())) > 1:
        yield f"{place}: the first {shortest} bytes differ, {digests}"


def _segments(log: Path, place: Place) -> list[Path]:
    return sorted((log / str(place)).glob("*.log"))


def _digest(log: Path, place: Place, size: int) -> str:
    digest = hashlib.sha256()
    for path in _segments(log, place):
        with path.open("rb") as segment:
            while chunk := segment.read(min(_CHUNK, size)):
                digest.update(chunk)
                size -= len(chunk)
    return digest.hexdigest()[:16]
