"""A clock that stands still until a test moves it."""


class VirtualClock:
    """Fits `broker.clock.Clock`; wall and monotonic time move together unless `jump_wall` is used."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = now_ms
        self._monotonic = 1000.0

    def now_ms(self) -> int:
        return self._wall_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("time does not go back; use jump_wall for a wall clock that does")
        self._wall_ms += round(seconds * 1000)
        self._monotonic += seconds

    def jump_wall(self, ms: int) -> None:
        """What an NTP step does: only the wall clock moves, maybe backwards."""
        self._wall_ms += ms
