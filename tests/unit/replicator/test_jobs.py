"""The periodic jobs of a link: what failed is tried again within seconds, however seldom the job is."""

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from protocol.errors import ProtocolError
from replicator import jobs as module
from replicator.jobs import Jobs, Worked
from replicator.metrics import LinkMetrics
from replicator.workers import listening
from replicator.workers.report import EVERY_S, RESTS_S


@pytest.mark.parametrize(("fails", "again_s"), [(False, 600.0), (True, 5.0)])
async def test_a_job_that_failed_does_not_wait_for_its_next_turn(
    monkeypatch: pytest.MonkeyPatch, fails: bool, again_s: float
) -> None:
    waited: list[float] = []

    async def set_within(_: Any, seconds: float) -> bool:
        waited.append(seconds)
        raise asyncio.CancelledError

    async def job() -> None:
        if fails:
            raise ProtocolError("not now")

    monkeypatch.setattr(module, "set_within", set_within)
    jobs = Jobs("east->west", LinkMetrics("east->west", CollectorRegistry()))
    with pytest.raises(asyncio.CancelledError):
        await jobs.every("ACLs", lambda: 600.0, job)
    assert waited == [pytest.approx(again_s, abs=0.5)]
    assert ("ACLs" in jobs.troubles) is fails


class Clock:
    """Goes on while somebody works."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


async def test_a_job_rests_for_what_it_has_worked_itself(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """Not for what others did meanwhile, nor for its waiting."""
    slept: list[float] = []
    others = asyncio.Event()

    async def job() -> None:
        clock.work(0.02)
        asyncio.get_running_loop().call_soon(clock.work, 0.1)
        asyncio.get_running_loop().call_soon(others.set)
        await others.wait()
        clock.work(0.01)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        raise asyncio.CancelledError

    jobs = Jobs("east->west", LinkMetrics("east->west", CollectorRegistry()))
    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await jobs.every("metrics", lambda: 0.5, job)
    assert slept == [pytest.approx(50 * 0.03)]


async def test_what_the_tasks_of_a_job_work_counts_as_its_own(clock: Clock) -> None:
    async def one(number: int) -> int:
        clock.work(0.01)
        return number

    async def part(number: int) -> int:
        return await Worked(lambda: one(number))

    async def job() -> list[int]:
        return await asyncio.gather(*map(part, range(3)))

    worked = Worked(job)
    assert await worked == [0, 1, 2]
    assert worked.held_s == pytest.approx(0.03)
    other = Worked(lambda: one(7))
    assert await other == 7
    assert worked.held_s == pytest.approx(0.03)


async def test_a_job_hears_of_its_end_and_of_its_errors() -> None:
    """The job is awaited as if nobody measured it."""
    said: list[str] = []

    async def job() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            said.append("cancelled")
            await asyncio.sleep(0)
            said.append("cleaned up")
            raise

    async def run(worked: Worked) -> None:
        await worked

    task = asyncio.create_task(run(Worked(job)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert said == ["cancelled", "cleaned up"]

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ProtocolError("not now")

    with pytest.raises(ProtocolError, match="not now"):
        await Worked(fails)


async def test_who_is_listened_for_does_not_rest_longer_than_that(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """A status waits a few seconds for the next report of a worker, however many partitions that one has."""
    slept: list[float] = []

    async def job() -> None:
        clock.work(0.2)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        raise asyncio.CancelledError

    jobs = Jobs("east->west", LinkMetrics("east->west", CollectorRegistry()))
    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await jobs.every("report", lambda: 0.5, job, longest_rest_s=RESTS_S)
    assert slept == [RESTS_S]
    assert EVERY_S + RESTS_S < listening._LISTEN_S
