"""The two clusters of a link: connecting to them, however long that takes, and whether they answer now.

Owns the metric and the log line about each. A link whose target is down is up itself and copies nothing: who
asks how it stands (`isthmus status`) has to be able to tell.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

from protocol.client import NO_RETRIES, ClientError, ClusterClient, TokenError, WrongClusterError
from protocol.errors import ProtocolError
from replicator.metrics import LinkMetrics
from replicator.settings import ClusterEnd, LinkSettings
from replicator.troubles import Troubles

_log = logging.getLogger("isthmus.replicator")

_CONNECT_AGAIN_S = 1.0
_REFUSED_AGAIN_S = 10.0
"""After a token endpoint has refused its client: providers lock out who goes on asking."""
ANSWER_S = 5.0


class Reach:
    """Both ends of one link; `troubles` has one for each that does not answer, by alias."""

    def __init__(self, settings: LinkSettings, metrics: LinkMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self.troubles = Troubles()
        self.clients: dict[str, ClusterClient] = {}
        """Of those that have answered, by alias."""
        self._said: dict[str, type[Exception]] = {}
        """Of which kind of trouble the log speaks already."""
        for end in (settings.source, settings.target):
            metrics.cluster_up.labels(settings.name, end.alias).set(0)

    async def connect(
        self, stop: asyncio.Event, stack: AsyncExitStack
    ) -> tuple[ClusterClient, ClusterClient] | None:
        """Clients of source and target, which `stack` closes; None when told to stop before."""
        opening = [
            asyncio.create_task(self._one(end, stop, stack))
            for end in (self._settings.source, self._settings.target)
        ]
        try:
            source, target = await asyncio.gather(*opening)
        finally:
            for task in opening:
                task.cancel()
            await asyncio.gather(*opening, return_exceptions=True)
        return None if source is None or target is None else (source, target)

    async def _one(self, end: ClusterEnd, stop: asyncio.Event, stack: AsyncExitStack) -> ClusterClient | None:
        while True:
            client = end.client(f"isthmus-link-{self._settings.name}", first_contact=NO_RETRIES)
            opening = asyncio.ensure_future(client.__aenter__())
            stopping = asyncio.ensure_future(stop.wait())
            waiting = {opening, stopping}
            try:
                done, _ = await asyncio.wait(waiting, timeout=ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
                if not done:  # somebody takes the connection, or its packets, and says nothing
                    self._silent(end, TimeoutError())
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopping.cancel()
                if not opening.done():
                    opening.cancel()
                    await asyncio.gather(opening, return_exceptions=True)
            if opening.cancelled():
                return None
            error = opening.exception()
            if error is None:
                stack.push_async_exit(client)
                self.clients[end.alias] = client
                self._answers(end)
                return client
            if not isinstance(error, ProtocolError):
                raise error
            self._silent(end, error)
            refused = isinstance(error, TokenError) and not error.curable
            if await set_within(stop, _REFUSED_AGAIN_S if refused else _CONNECT_AGAIN_S):
                return None

    async def look(self, source: ClusterClient, target: ClusterClient) -> None:
        """Asks both. Raises WrongClusterError."""
        ends = ((self._settings.source, source), (self._settings.target, target))
        await asyncio.gather(*(self._ask(end, client) for end, client in ends))

    async def _ask(self, end: ClusterEnd, client: ClusterClient) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                await client.metadata(())
        except WrongClusterError:
            raise
        except ClientError as error:
            self._silent(end, client.explained(error))
        except (ProtocolError, TimeoutError) as error:
            self._silent(end, error)
        else:
            self._answers(end)

    def _silent(self, end: ClusterEnd, error: Exception) -> None:
        self._metrics.cluster_up.labels(self._settings.name, end.alias).set(0)
        self.troubles.note(end.alias, _named(end, error))
        if self._said.get(end.alias) is not type(error):
            self._said[end.alias] = type(error)
            _log.warning("%s: %s", self._settings.name, self.troubles[end.alias])

    def _answers(self, end: ClusterEnd) -> None:
        self._metrics.cluster_up.labels(self._settings.name, end.alias).set(1)
        self._said.pop(end.alias, None)
        if self.troubles.pop(end.alias, None) is not None:
            _log.info("%s: %s can be reached again", self._settings.name, end.alias)


def _named(end: ClusterEnd, error: Exception) -> Exception | str:
    """Errors of clients name the cluster themselves (`ClusterClient.explained`)."""
    if isinstance(error, ClientError):
        return error
    words = str(error) or f"no answer within {ANSWER_S:g} s"
    return f"{end.alias} cannot be reached ({end.bootstrap}): {words}"


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event is set before the time is over."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
