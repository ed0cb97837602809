"""The controller asks for settings of topics that it has no replica of, once one has no leader."""

from tests.support.controllers_in_memory import World
from tests.support.simulated_zookeeper import Interruption


async def test_a_topic_that_is_created_again_is_asked_for_again() -> None:
    asked: list[str] = []

    async def learn(topics) -> None:
        asked.extend(topics)

    async with World(Interruption()) as world:
        for controller in world.controllers:
            controller._learn = learn
        await world.create("t", {0: (1,)})
        await world.settled()
        await world.die(1)
        await world.settled()
        assert "t" in asked
        await world.register(1)
        await world.settled()
        await world.delete("t")
        await world.settled()
        asked.clear()
        await world.create("t", {0: (1,)})
        await world.settled()
        await world.die(1)
        await world.settled()
        assert "t" in asked
