"""The event loop's delay is measured, told apart by its cause, and seen on /metrics for a while."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from broker.loop_delay import LATE_S, PEAK_KEPT_S, Delays, LoopWatch
from broker.server.metrics import BrokerMetrics

BOUND_S = 30.0


def test_a_peak_is_seen_for_one_to_two_minutes() -> None:
    delays = Delays()
    assert not delays.note(1000.0, LATE_S / 2)
    assert delays.note(1001.0, 3.0)
    assert not delays.note(1001.0 + PEAK_KEPT_S, 0.0)
    assert delays.peak_s == 3.0, "a scrape that comes late sees it"
    assert not delays.note(1002.0 + 2 * PEAK_KEPT_S, 0.01)
    assert delays.peak_s == 0.01
    assert (delays.late, delays.total_s) == (1, 3.0)


async def test_what_holds_up_the_loop_is_counted_and_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="isthmus.broker.loop")
    metrics = BrokerMetrics()
    watch = LoopWatch(metrics)
    watch.start()
    try:
        await asyncio.sleep(0)
        time.sleep(0.5)  # noqa: ASYNC251 - what must not happen
        async with asyncio.timeout(BOUND_S):
            while not watch.delays.late:
                await asyncio.sleep(0.01)
    finally:
        watch.close()
    assert watch.delays.peak_s > 0.3
    assert "test_what_holds_up_the_loop" in caplog.text, "the stack says who"
    found = {sample.name: sample.value for family in metrics.collect() for sample in family.samples}
    assert found["isthmus_broker_event_loop_delay_max_seconds"] == watch.delays.peak_s
    assert found["isthmus_broker_event_loop_late_beats_total"] >= 1
