"""Targets that lose what they acknowledged: unclean elections, which mirrors alone allow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.chaos.claims import LeftOut
from tests.chaos.links.schedule import BROKERS, Step
from tests.chaos.links.world import LINKS, LinkWorld, answered, ends
from tests.support.waiting import wait_until

_BOUND_S = 40.0
HIDDEN = ("changed", "skipped")
"""Anomalies that tell nothing here: readers of a mirror see other records where some were lost, and where a
group stood meanwhile is not to be told from what the mirror holds at the end."""


@contextmanager
def lose_mirrors(world: LinkWorld, step: Step) -> Iterator[None]:
    """One broker is away while the link writes; then the other one is, and the first one leads: what it
    missed of the mirrors is lost. Originals of that side wait for the other one."""
    source, side = ends(LINKS[step.link])
    names = world.brokers_of(side)
    if len(names) < BROKERS:
        raise LeftOut(f"{side} is one broker")
    behind, ahead = names if step.broker == 1 else reversed(names)
    away: set[str] = set()
    with world.claim(names):
        try:
            mirrors = _allow(world, side, source)
            world.say(f"mirrors at {side} lose what {behind} misses for {step.seconds:g} s")
            away.add(behind)
            world.kill(behind)
            wait_until(lambda: _stand(world, side, mirrors, ahead), f"{ahead} has all", bound_s=_BOUND_S)
            world.wait(step.seconds)
            away.add(ahead)
            world.kill(ahead)
            away.remove(behind)
            world.launch(behind)
            wait_until(lambda: _stand(world, side, mirrors, behind), f"{behind} leads", bound_s=_BOUND_S)
            world.say(f"{behind} leads mirrors at {side}")
            world.wait(10 * step.delay_s)
        except (AssertionError, KafkaException) as error:
            raise LeftOut(f"not among these faults: {str(error)[:80]}") from None
        finally:
            for name in away:
                world.launch(name)
        yield


def _allow(world: LinkWorld, side: str, source: str) -> set[str]:
    """Lets the mirrors of a source lose records; their names."""
    there = world.partitions(side)
    mirrors = {f"{source}.{topic}" for topic in world.topics[source]} & there.keys()
    if not mirrors:
        raise LeftOut(f"{side} has no mirrors yet")
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in (("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1"))
    ]
    wanted = [ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries) for name in mirrors]
    for future in world.admin(side).incremental_alter_configs(wanted, request_timeout=20).values():
        answered(future)
    return mirrors


def _stand(world: LinkWorld, side: str, topics: set[str], broker: str) -> bool:
    """Whether one broker leads them all, and is their only replica in sync."""
    number = int(broker.removeprefix(side))
    try:
        found = world.admin(side).list_topics(timeout=5).topics
    except KafkaException:
        return False
    return all(
        (each.leader, each.isrs) == (number, [number])
        for topic in topics & found.keys()
        for each in found[topic].partitions.values()
    )
