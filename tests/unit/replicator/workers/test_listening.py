"""Who is silent, whatever the clocks of other machines and of who asks say."""

import asyncio
from dataclasses import replace

import pytest

from isthmus.commands.link_status import _when
from replicator.progress import Progress
from replicator.troubles import now_ms
from replicator.workers.listening import Hearing, listened
from replicator.workers.report import EVERY_S, STALE_S, WorkerReport
from tests.support.jumping_loop import run_jumping

MINUTES_5 = 300_000


class Topic:
    """A progress topic in which workers write every few seconds of the loop's time; `ahead_ms` is how far
    their clocks are before that of who asks."""

    def __init__(self, ahead_ms: int, *workers: str) -> None:
        self._ahead_ms, self._workers = ahead_ms, workers
        self.progress = Progress()
        self._said = -1

    def write(self, worker: str, at_ms: int) -> None:
        report = WorkerReport(worker, worker, at_ms=at_ms + self._ahead_ms)
        self.progress.apply([(report.key.encode(), report.encode())])

    async def refresh(self) -> Progress:
        rounds = int(asyncio.get_running_loop().time() / EVERY_S)
        if rounds > self._said:
            self._said = rounds
            for worker in self._workers:
                self.write(worker, now_ms() + rounds)
        return self.progress


async def judged(topic: Topic) -> dict[str, bool]:
    await topic.refresh()
    return {one.worker: one.silent for one in await listened(topic, topic.progress)}


@pytest.mark.parametrize("ahead_ms", [-MINUTES_5, 0, MINUTES_5])
@pytest.mark.parametrize("dead_for_ms", [2 * MINUTES_5, 60_000])
def test_a_worker_is_silent_when_nothing_comes_of_it(ahead_ms: int, dead_for_ms: int) -> None:
    """By the clock of who asks, live ones were silent or dead ones ran."""
    topic = Topic(ahead_ms, "lives")
    topic.write("died", now_ms() - dead_for_ms)
    assert run_jumping(judged(topic)) == {"lives": False, "died": True}


def test_nobody_waits_where_clocks_agree_and_all_live() -> None:
    async def took() -> float:
        await judged(Topic(0, "a", "b"))
        return asyncio.get_running_loop().time()

    assert run_jumping(took()) == 0


def test_who_ends_in_order_while_somebody_listens_is_not_on_record() -> None:
    topic = Topic(0)
    topic.write("ends", 0)

    async def ending() -> dict[str, bool]:
        async def end() -> None:
            await asyncio.sleep(1)
            topic.progress.apply([(b"worker/ends", None)])

        task = asyncio.create_task(end())
        try:
            return await judged(topic)
        finally:
            await task

    assert run_jumping(ending()) == {}


@pytest.mark.parametrize("ahead_ms", [-MINUTES_5, MINUTES_5])
def test_a_process_that_reads_all_the_time_counts_by_its_own_hearing(ahead_ms: int) -> None:
    now = [100.0]
    hearing = Hearing(lambda: now[0])
    report = WorkerReport("a", "a", at_ms=now_ms() + ahead_ms)
    for _ in range(3):
        (found,) = hearing.judged([report])
        assert not found.silent
        now[0] += EVERY_S
        report = replace(report, at_ms=report.at_ms + int(EVERY_S * 1000))
    now[0] += STALE_S
    (found,) = hearing.judged([found])
    assert found.silent
    (found,) = hearing.judged([report])
    assert not found.silent


def test_how_long_a_link_runs_is_told_by_the_clock_that_says_when_it_began() -> None:
    report = WorkerReport("a", "a", began_ms=1_000_000, at_ms=1_060_000).to_json()
    assert _when(1_000_000, report).endswith("(60 s)")
    assert _when(1_000_000, report | {"silent": True}).endswith("UTC")
