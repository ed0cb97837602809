"""A process of a link that waits for its source says so in the progress topic, before it is a worker.

Owns writing that record while it waits, and taking it away. Whoever asks the target how the link stands
(`links status` on any host) would else see nothing at all. One that is killed meanwhile leaves a record that
grows old, and goes with the next leader (`reporting`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from protocol.client import ClusterClient
from protocol.errors import ProtocolError
from replicator.progress import ProgressStore
from replicator.reach import Reach
from replicator.settings import LinkSettings
from replicator.troubles import now_ms
from replicator.workers.messages import WorkerInfo
from replicator.workers.report import EVERY_S, WorkerReport

_log = logging.getLogger("isthmus.replicator")

_FIRST_AFTER_S: Final = 1.0
"""A link whose clusters both answer has begun by then, and writes nothing here."""
_END_S: Final = 2.0


@contextlib.asynccontextmanager
async def announcing(
    settings: LinkSettings, reach: Reach, standing: Callable[[], Mapping[str, Any]], rest: str
) -> AsyncIterator[None]:
    """While the context lasts; ad-hoc copies have no such records."""
    if not settings.shared:
        yield
        return
    said = _Announcing(settings, reach, standing, rest)
    task = asyncio.create_task(said.for_ever())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await said.end()


class _Announcing:
    def __init__(
        self, settings: LinkSettings, reach: Reach, standing: Callable[[], Mapping[str, Any]], rest: str
    ) -> None:
        self._settings = settings
        self._reach = reach
        self._standing = standing
        self._info = WorkerInfo.of_this_process(rest)
        self._began_ms = now_ms()
        self._store: ProgressStore | None = None
        self._failed = False

    def _client(self) -> ClusterClient | None:
        """Of the target, as long as the source is what it waits for."""
        waits = self._settings.source.alias in self._reach.troubles
        return self._reach.clients.get(self._settings.target.alias) if waits else None

    async def for_ever(self) -> None:
        await asyncio.sleep(_FIRST_AFTER_S)
        while True:
            client = self._client()
            if client is not None:
                try:
                    await self._say(client)
                except ProtocolError as error:
                    if not self._failed:
                        name = self._settings.name
                        _log.warning("%s: that it waits cannot be said at the target: %s", name, error)
                    self._failed = True
            await asyncio.sleep(EVERY_S)

    async def _say(self, client: ClusterClient) -> None:
        if self._store is None:
            store = ProgressStore(
                client, self._settings.progress_topic, self._settings.internal_replication_factor
            )
            await store.load()
            self._store = store
        report = WorkerReport(
            self._info.worker,
            self._info.incarnation,
            self._info.host,
            self._info.pid,
            self._info.rest,
            began_ms=self._began_ms,
            at_ms=now_ms(),
            problems=self._reach.troubles.texts,
            standing=self._standing(),
            problems_since=self._reach.troubles.since,
        )
        await self._store.save_notes({report.key: report.encode()})

    async def end(self) -> None:
        if self._store is None:
            return
        key = WorkerReport(self._info.worker, self._info.incarnation).key
        try:
            async with asyncio.timeout(_END_S):
                await self._store.save_notes({key: None})
        except (ProtocolError, TimeoutError) as error:
            _log.info("%s: its record of waiting stays: %s", self._settings.name, error or "no answer")
