"""Tasks that begin at once: like others in all but when."""

import asyncio

import pytest

from transfer.eager import start


async def test_the_first_step_is_taken_before_start_returns() -> None:
    steps: list[str] = []
    gate: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        steps.append("begun")
        found = await gate
        await asyncio.sleep(0)
        steps.append("went on")
        return found

    task = start(work())
    assert steps == ["begun"]
    gate.set_result("there")
    assert await task == "there"
    assert steps == ["begun", "went on"]


async def test_what_needs_no_waiting_is_done_at_once() -> None:
    async def work() -> int:
        return 7

    async def fails() -> int:
        raise ValueError("no")

    task = start(work())
    assert task.done()
    assert task.result() == 7
    failed = start(fails())
    assert failed.done()
    with pytest.raises(ValueError, match="no"):
        await failed


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_it_is_cancelled_where_it_waits(turns: int) -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = start(work())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


async def test_what_it_waits_for_may_be_done_before_its_task_begins() -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        try:
            await gate
        except ValueError:
            return "told"
        return "not told"

    task = start(work())
    gate.set_exception(ValueError())
    assert await task == "told"


async def test_it_may_yield_bare_turns_and_use_time_limits_later() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(5)
        except TimeoutError:
            return "timed out"
        return "slept"

    assert await start(work()) == "timed out"
