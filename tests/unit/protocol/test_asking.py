"""The first broker that answers: what the others say at the same moment is heard too."""

import asyncio
import gc

import pytest

from protocol.client import ConnectError
from protocol.client import asking as module
from protocol.client.asking import first_answer

ADDRESSES = (("a", 1), ("b", 2), ("c", 3))


class Pool:
    """Gives the address itself as a connection."""

    async def get(self, address, lane):
        return address


@pytest.mark.parametrize("answering", ["a", "b", "c"])
async def test_failures_beside_an_answer_are_no_exceptions_that_nobody_retrieved(monkeypatch, answering):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.0)
    unheard = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    together = asyncio.Event()

    async def ask(address):
        await together.wait()
        if address[0] == answering:
            return address
        raise ConnectError(f"{address} is away")

    asked = asyncio.create_task(first_answer(Pool(), ADDRESSES, ask))
    await asyncio.sleep(0.05)
    together.set()
    assert (await asked)[0] == answering
    del asked
    gc.collect()
    await asyncio.sleep(0)
    assert not unheard


async def test_what_is_no_trouble_of_the_way_is_raised(monkeypatch):
    async def ask(address):
        raise ValueError(address)

    with pytest.raises(ValueError, match="a"):
        await first_answer(Pool(), ADDRESSES, ask)


async def test_who_reaches_nobody_says_so():
    async def ask(address):
        raise ConnectError(f"{address[0]} is away")

    with pytest.raises(ConnectError, match="a is away; b is away; c is away"):
        await first_answer(Pool(), ADDRESSES, ask)
