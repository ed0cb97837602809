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


async def test_who_is_cancelled_at_once_may_still_wait_for_something() -> None:
    """What it waited for before is not waited for again."""
    steps: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0.001)
            steps.append("tidied up")

    task = start(work())
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled()
    assert steps == ["tidied up"]


@pytest.mark.parametrize("turns", [0, 1])
async def test_the_task_that_it_waits_for_is_cancelled_with_it(turns: int) -> None:
    inner = asyncio.create_task(asyncio.sleep(60))

    async def work() -> None:
        await inner

    task = start(work())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled()
    assert inner.cancelled()


async def test_several_may_wait_for_the_same() -> None:
    gate: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        return await gate

    tasks = [start(work()) for _ in range(3)]
    asyncio.get_running_loop().call_later(0.001, gate.set_result, "there")
    assert await asyncio.gather(work(), *tasks) == ["there"] * 4


async def test_the_end_of_what_it_waits_for_is_not_its_callers() -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    gate.cancel()

    async def work() -> None:
        await gate

    assert start(work()).cancelled()
