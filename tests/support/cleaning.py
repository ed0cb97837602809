"""Compacts a log in the test's own process: what the broker does, without the cleaner's process."""

from broker.clock import Clock
from broker.config.server_settings import LogSettings
from broker.log import Log
from broker.log.cleaner.compaction import Compaction
from broker.log.cleaner.job import BYTES_PER_KEY, Done, Event, GroupCleaned
from broker.log.cleaner.partition import dirt_of, job_for, swap_in
from broker.log.cleaner.throttle import Throttle


def clean(log: Log, clock: Clock, checkpoint: int | None = None, *, map_keys: int = 1_000_000) -> int | None:
    """Clean whatever may be cleaned; returns up to which offset, None when there was nothing."""
    now_ms = clock.now_ms()
    dirt = dirt_of(log, checkpoint, now_ms)
    if not dirt.cleanable_bytes:
        return None
    job = job_for(log, dirt, LogSettings(log_cleaner_dedupe_buffer_size=BYTES_PER_KEY * map_keys), now_ms)
    events: list[Event] = []
    Compaction(job, events.append, Throttle(float("inf"))).run()
    for event in events:
        if isinstance(event, GroupCleaned):
            assert swap_in(log, job, event, now_ms)
    done = events[-1]
    assert isinstance(done, Done)
    return done.end
