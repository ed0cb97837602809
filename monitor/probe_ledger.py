"""What became of each message of a probe: in time, late, lost, or still on its way; and which brokers fail.

Pure; times are passed in, in seconds. Late is not lost: a message that comes back after its deadline, however
often it was tried, is counted late, and lost only when it was given up.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class BrokerRecord:
    """Counts of one broker since the probe began."""

    in_time: int = 0
    late: int = 0
    lost: int = 0
    latency_s: float | None = None
    """Of the newest message that came back."""
    reason: str = ""
    """Why the last try failed; empty after one that did not."""
    last_was_in_time: bool = True


class ProbeLedger:
    def __init__(self, deadline_s: float, give_up_s: float) -> None:
        """A message is late after `deadline_s`, and lost after `give_up_s`."""
        self.deadline_s, self.give_up_s = deadline_s, give_up_s
        self.brokers: dict[int, BrokerRecord] = {}
        self._waiting: dict[tuple[int, int], float] = {}

    def sent(self, broker: int, number: int, now: float) -> None:
        self.brokers.setdefault(broker, BrokerRecord())
        self._waiting[broker, number] = now

    def arrived(self, broker: int, number: int, now: float) -> None:
        took = now - self._waiting.pop((broker, number))
        record = self.brokers[broker]
        record.latency_s, record.reason = took, ""
        record.last_was_in_time = took <= self.deadline_s
        if record.last_was_in_time:
            record.in_time += 1
        else:
            record.late += 1

    def failed(self, broker: int, reason: str) -> None:
        """A try did not work; the message may still come with another one."""
        self.brokers.setdefault(broker, BrokerRecord()).reason = reason

    def given_up(self, broker: int, number: int) -> None:
        del self._waiting[broker, number]
        record = self.brokers[broker]
        record.lost += 1
        record.last_was_in_time = False

    def waiting(self, broker: int) -> int:
        return sum(1 for each, _ in self._waiting if each == broker)

    def overdue(self, broker: int, now: float) -> bool:
        return any(
            each == broker and now - sent > self.deadline_s for (each, _), sent in self._waiting.items()
        )

    def fails(self, broker: int, now: float) -> bool:
        """Whether a message is overdue now, or the newest one was late or lost."""
        return self.overdue(broker, now) or not self.brokers[broker].last_was_in_time
