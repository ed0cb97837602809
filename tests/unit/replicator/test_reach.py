"""What a link says of clusters that it cannot reach, before it has ever reached them."""

import asyncio
import socket
import time
from contextlib import AsyncExitStack

import pytest
from prometheus_client import CollectorRegistry

from replicator.metrics import LinkMetrics
from replicator.plan import plan_of
from replicator.reach import Reach
from replicator.settings import LinkSettings
from tests.support.fake_broker import FakeBroker

PROMPT_S = 3.0
"""Far less than the five seconds after which a cluster counts as silent, and enough for a busy machine."""


@pytest.fixture
def refusing():
    """An address where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{unused.getsockname()[1]}"


UNKNOWN = "no-such-host.invalid:9092"


def link(source, target):
    return LinkSettings.model_validate(
        {"source": {"alias": "east", "bootstrap": source}, "target": {"alias": "west", "bootstrap": target}}
    )


async def problems_of(settings, aliases):
    """What the link says of both, once it says something of all `aliases`."""
    reach = Reach(settings, LinkMetrics(settings.name, CollectorRegistry()))
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        connecting = asyncio.create_task(reach.connect(stop, stack))
        end = time.monotonic() + 4 * PROMPT_S
        while not aliases <= reach.troubles.keys() and time.monotonic() < end:
            await asyncio.sleep(0.02)
        stop.set()
        assert await connecting is None
    return reach.troubles.texts


async def test_who_refuses_and_who_is_unknown_are_named_at_once_both_of_them(refusing):
    began = time.monotonic()
    found = await problems_of(link(refusing, UNKNOWN), {"east", "west"})
    assert time.monotonic() - began < PROMPT_S
    assert found["east"].startswith(
        f"east cannot be reached (PLAINTEXT at {refusing}): {refusing}: cannot connect: Connection refused;"
    )
    assert "unknown host no-such-host.invalid" in found["west"]
    assert "DNS" in found["west"]


async def test_a_target_that_refuses_is_named_while_the_source_is_silent(refusing):
    """The one is not waited for before the other is asked."""
    async with FakeBroker(lambda peer: peer.reader.read()) as silent:
        found = await problems_of(link(silent.address, refusing), {"west"})
    assert "Connection refused" in found["west"]


async def test_a_plan_says_why_and_where_at_once(refusing):
    began = time.monotonic()
    for source, words in ((refusing, "Connection refused"), (UNKNOWN, "unknown host")):
        problem = (await plan_of(link(source, refusing))).problem
        assert f"east cannot be reached (PLAINTEXT at {source})" in problem
        assert words in problem
    assert time.monotonic() - began < PROMPT_S
