"""The connections that read from one broker."""

import asyncio

from protocol.frames import encode_response
from protocol.messages.fetch_response import FetchResponse
from protocol.types import TopicPartition
from transfer.kafka.fetcher import BrokerFetcher, FetchSettings
from transfer.kafka.reading import Reading


class Connection:
    """Answers that there is nothing, once; its session ends then."""

    closed = retired = False

    def version_of(self, request, newest=None):
        return 12

    async def frame(self, request, version, body):
        if self.retired:
            raise AssertionError("asked again")
        self.retired = True
        return memoryview(b"".join(encode_response(FetchResponse(), version, 1))[4:])

    async def close(self):
        self.closed = True


async def test_a_session_that_ends_is_left_for_a_new_one():
    """KIP-368: a broker drops the connection of who asks on."""
    dialled, faults = [], []

    async def dial(lane):
        dialled.append(Connection())
        await asyncio.sleep(0)
        return dialled[-1]

    async def nothing(*_):
        pass

    reading = Reading(TopicPartition("a", 0), 0, leader=1)
    settings = FetchSettings(connections_per_broker=1)
    fetcher = BrokerFetcher(dial, settings, lambda: [reading], nothing, nothing, faults.append)
    async with asyncio.timeout(10):
        while len(dialled) < 3:
            await asyncio.sleep(0)
    await fetcher.close()
    assert not faults
