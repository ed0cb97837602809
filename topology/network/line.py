"""One direction between two sites: when does what is sent now arrive there?

Owns the model of a wide-area network as TCP connections see it. Clock and chance come in; no I/O.

- delay: all arrives so much later; jitter: up to so much earlier or later, a connection keeps its order.
- bandwidth: one line that all connections share, first come first served, with no end to its queue.
- loss: TCP repairs it, so a lost packet is time: a round trip where others follow (fast retransmit), else the
  retransmission time-out of 200 ms and a round trip, for all that is behind it in its connection. Loss also
  limits what a connection has under way: the larger average window of Reno and CUBIC (RFC 9438 §5.1).
- cut: nothing arrives; what is under way waits as TCP's retransmissions do, and comes once it is healed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

MSS = 1448
"""Bytes of a full packet on Ethernet with timestamps."""
WINDOW = 4 * 1024 * 1024
"""Bytes that a connection has under way without loss: what Linux lets a socket buffer grow to by itself."""
RETRANSMISSION_TIMEOUT_S = 0.2
_FOLLOWED = 4
"""So many packets make duplicate acknowledgements for a lost one among them."""


@dataclass(frozen=True)
class LineSettings:
    """Seconds one way, share of packets, bytes per second (None: no limit)."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    bandwidth: float | None = None
    up: bool = True


class Line:
    """From one site to another. `opposite` is the way back, whose delay is part of the round trip."""

    def __init__(self, settings: LineSettings, chance: Callable[[], float]) -> None:
        """`chance` gives numbers from 0 to 1."""
        self.settings = settings
        self.opposite: Line = self
        self.carried = 0
        """Bytes that have arrived over it."""
        self._chance = chance
        self._free_at = 0.0

    @property
    def round_trip_s(self) -> float:
        return self.settings.delay_s + self.opposite.settings.delay_s

    def change(self, settings: LineSettings) -> None:
        self.settings = settings
        self._free_at = 0.0

    def arrival(self, now: float, size: int) -> float:
        """When `size` bytes sent now are there, for which they take their turn; infinity while it is cut."""
        settings = self.settings
        if not settings.up:
            return math.inf
        sent = now
        if settings.bandwidth is not None:
            sent = self._free_at = max(self._free_at, now) + size / settings.bandwidth
        delay = settings.delay_s
        if settings.jitter_s:
            delay = max(0.0, delay + settings.jitter_s * (2 * self._chance() - 1))
        return sent + delay + self._repair(size)

    def window(self) -> int:
        """Bytes that one connection may have under way in this direction before it waits.

        TCP's window counts until the acknowledgement is back; here bytes count until they arrive, so this
        direction gets its part of the round trip.
        """
        round_trip = self.round_trip_s
        if not round_trip:
            return WINDOW
        window = float(WINDOW)
        if self.settings.loss:
            reno = 1.22 / math.sqrt(self.settings.loss)
            cubic = 1.054 * (round_trip / self.settings.loss) ** 0.75
            window = min(window, max(2.0, reno, cubic) * MSS)
        return max(2 * MSS, int(window * self.settings.delay_s / round_trip))

    def _repair(self, size: int) -> float:
        """Seconds that the repair of lost packets costs these bytes."""
        loss = self.settings.loss
        if not loss:
            return 0.0
        packets = max(1, math.ceil(size / MSS))
        if self._chance() >= 1 - (1 - loss) ** packets:
            return 0.0
        if packets >= _FOLLOWED:
            return self.round_trip_s
        return RETRANSMISSION_TIMEOUT_S + self.round_trip_s
