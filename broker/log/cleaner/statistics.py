"""What the cleaner has done and is doing, for metrics (Kafka's LogCleaner and LogCleanerManager gauges).

Plain numbers. Names that Kafka has are in `broker.server.cleaner_metrics`.
"""

from dataclasses import dataclass

from broker.clock import Clock
from broker.log.cleaner.job import Done, Progress
from broker.log.cleaner.plan import Dirt
from protocol.types import TopicPartition


@dataclass(slots=True)
class Running:
    """A job. `to_read` is an estimate: the dirty part is read twice."""

    to_read: int
    read: int = 0
    written: int = 0
    map_filled: float = 0.0


class CleanerStatistics:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.running: dict[TopicPartition, Running] = {}
        self.runs = 0
        self.failures = 0
        self.read = 0
        """Bytes of finished jobs."""
        self.written = 0
        self.recopy_percent = 0.0
        """Of the last job: how much of what it read was written again."""
        self.last_seconds = 0.0
        self.map_filled_percent = 0.0
        self.max_dirty_percent = 0.0
        self.max_delay_ms = 0.0
        self.uncleanable: dict[str, tuple[int, int]] = {}
        self._looked_ms = clock.now_ms()

    def looked_through(
        self, dirtiest: float, overdue_ms: float, uncleanable: dict[str, tuple[int, int]]
    ) -> None:
        self._looked_ms = self._clock.now_ms()
        self.max_dirty_percent = dirtiest * 100
        self.max_delay_ms = overdue_ms
        self.uncleanable = uncleanable

    @property
    def idle_ms(self) -> int:
        """Since logs were last looked through."""
        return self._clock.now_ms() - self._looked_ms

    def began(self, tp: TopicPartition, dirt: Dirt) -> None:
        self.running[tp] = Running(dirt.clean_bytes + 2 * dirt.cleanable_bytes)

    def progress(self, tp: TopicPartition, event: Progress) -> None:
        running = self.running.get(tp)
        if running is not None:
            running.read, running.written = event.read, event.written
            running.map_filled = event.map_filled
            self.map_filled_percent = event.map_filled * 100

    def finished(self, tp: TopicPartition, done: Done) -> None:
        self.running.pop(tp, None)
        self.runs += 1
        self.read += done.read
        self.written += done.written
        self.recopy_percent = 100 * done.written / done.read if done.read else 0.0
        self.last_seconds = done.seconds

    def failed(self, tp: TopicPartition) -> None:
        self.running.pop(tp, None)
        self.failures += 1
