"""What waits for the controller is done for those who still want it, and for nobody's next life."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, cast

import pytest

from broker.control.controller_core import StateWrite
from broker.control.controller_jobs import HandedOver, Jobs, Work, hand_over
from protocol.errors import ErrorCode, KafkaError
from tests.support.control_world import World, live


def work_in(world: World) -> Work:
    async def write(writes: Sequence[StateWrite]) -> None:
        world._follow(list(writes))

    nothing = cast("Any", None)
    return Work(world.core, nothing, nothing, write, nothing, list)


def two_brokers() -> World:
    world = World({1: live(1), 2: live(2)})
    world.create("t", {0: (1, 2)})
    world.in_sync("t", 0, 1, 2)
    return world


async def test_a_broker_that_is_back_is_not_taken_for_the_one_that_stopped() -> None:
    world, jobs = two_brokers(), Jobs()
    stale = jobs.add(functools.partial(hand_over, broker_id=1, broker_epoch=1))
    gone = jobs.add(functools.partial(hand_over, broker_id=3, broker_epoch=1))
    world.brokers_are({1: live(1, epoch=9), 2: live(2)})
    before = world.state("t", 0)
    await jobs.do_all(work_in(world))
    for answer, code in ((stale, ErrorCode.STALE_BROKER_EPOCH), (gone, ErrorCode.BROKER_ID_NOT_REGISTERED)):
        with pytest.raises(KafkaError) as refused:
            await answer
        assert refused.value.code == code
    assert not world.core.leaving
    assert world.state("t", 0) == before


async def test_nothing_is_done_for_an_asker_who_is_gone() -> None:
    world, jobs = two_brokers(), Jobs()
    jobs.add(functools.partial(hand_over, broker_id=1, broker_epoch=1)).cancel()
    behind = jobs.add(functools.partial(hand_over, broker_id=2, broker_epoch=1))
    await jobs.do_all(work_in(world))
    assert await behind == HandedOver([], [])
    assert world.core.leaving == {2}
    assert world.state("t", 0)[:3] == (1, 0, (1,))
