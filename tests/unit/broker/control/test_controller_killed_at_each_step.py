"""A controller is killed, or loses its connection, at each step of each of its jobs: the next one ends it.

Steps are what others see of a controller: its writes in ZooKeeper and its orders. Each job is done once
undisturbed; then again with a fault at its first, second, third … step, before it and after it. Whatever the
step was, ZooKeeper and all brokers must end as if nothing had happened.
"""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from broker.control import controller_jobs as jobs
from broker.control.elections import Election
from protocol.types import TopicPartition
from tests.support.controllers_in_memory import World
from tests.support.simulated_zookeeper import Fault, Interruption

B0, B1, B2 = (TopicPartition("base", index) for index in range(3))
Act = Callable[[World], Awaitable[object]]


async def nothing(world: World) -> None: ...


async def create(world: World) -> None:
    await world.create("new", {0: (1, 2), 1: (3, 1)})


async def create_and_delete_another(world: World) -> None:
    await world.create("new", {0: (2, 1)})
    await world.delete("base")


async def grow(world: World) -> None:
    await world.grow("base", {3: (2, 1), 4: (3,)})


async def delete(world: World) -> None:
    await world.delete("base")


async def move(world: World) -> None:
    """One partition's leader goes, another one gets more replicas in other places."""
    targets = {B0: (3, 2), B1: (1, 2, 3)}
    await world.ask(partial(jobs.reassign, targets=targets))


async def lead_elsewhere(world: World) -> None:
    """Broker 1 was away: others lead what it would lead."""
    await world.die(1)
    await world.settled()
    await world.register(1)
    await world.settled()
    state = world.state(B0)
    assert state is not None
    assert state.leader != 1


async def elect(world: World) -> None:
    await world.ask(partial(jobs.elect_leaders, kind=Election.PREFERRED, partitions=None))


async def die(world: World) -> None:
    await world.die(3)


async def die_before(world: World) -> None:
    await world.die(3)
    await world.settled()


async def start_anew(world: World) -> None:
    """So quickly that nobody need have missed it."""
    await world.die(3)
    await world.register(3)


async def come_back(world: World) -> None:
    await world.register(3)


JOBS: dict[str, tuple[Act, Act]] = {
    "creation": (nothing, create),
    "growth": (nothing, grow),
    "deletion": (nothing, delete),
    "creation beside a deletion": (nothing, create_and_delete_another),
    "reassignment": (nothing, move),
    "election": (lead_elsewhere, elect),
    "a broker's death": (nothing, die),
    "a broker's return": (die_before, come_back),
    "a broker's restart": (nothing, start_anew),
}


async def done(job: str, interruption: Interruption) -> dict[str, object]:
    before, act = JOBS[job]
    async with World(interruption) as world:
        await before(world)
        interruption.counting = True
        await act(world)
        return await world.settled()


@pytest.mark.parametrize("job", JOBS)
async def test_a_job_ends_whatever_step_it_was_interrupted_at(job: str) -> None:
    undisturbed = Interruption()
    wanted = await done(job, undisturbed)
    assert len(undisturbed.taken) >= 4, undisturbed.taken
    for at, step in enumerate(undisturbed.taken, 1):
        for fault in Fault:
            if not fault.kills and "Check /controller_epoch" not in step:
                continue  # orders and single writes are sent again by their connection itself
            interruption = Interruption(at, fault)
            found = await done(job, interruption)
            assert len(interruption.taken) >= at, "the fault has come"
            assert found == wanted, f"step {at}: {fault.value}: {interruption.taken[at - 1]}"
