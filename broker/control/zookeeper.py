"""ZooKeeper for asyncio: kazoo runs in its own threads, results and events come to the event loop.

Commands are retried while the connection is away and end with SessionExpired when the session is gone. A
write whose answer was lost is looked at again before it is called a failure: our own node, our own data.
Watches fire once, and also when the connection was lost: whoever is woken reads again.
Must not know Kafka's paths.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Self

from kazoo import exceptions as kazoo_errors
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from broker.control.kazoo_calls import (
    ERRORS,
    Waker,
    Watch,
    add,
    node_of,
    open_client,
    settle,
    translated,
)
from broker.control.multi_read import MultiRead
from broker.control.zookeeper_types import (
    BadVersion,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionEvent,
    SessionExpired,
    ZooKeeperUnavailable,
)

_log = logging.getLogger("isthmus.broker")
_RETRY_PAUSE_S = 0.1
_TELL_AFTER_S = 2.0
_WAITING = (
    "no ZooKeeper has answered at %s for %g s: trying on, for %d ms in all (zookeeper.connection.timeout.ms)"
)
_IN_ONE_REQUEST = 200
"""Nodes read with one request: some hundred bytes each, and `jute.maxbuffer` is a megabyte."""

_LOST = (kazoo_errors.ConnectionLoss, kazoo_errors.OperationTimeoutError)


class ZooKeeper:
    """One session. Make it with `connect`; `close` ends the session and removes its ephemeral nodes."""

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop, address: str) -> None:
        self.address = address
        self._client = client
        self._loop = loop
        self._listeners: list[Callable[[SessionEvent], None]] = []
        self._expired = False
        self._closing = False
        self._reads_many = True
        self._connected = asyncio.Event()
        self.any_session = False
        """Nothing of ours depends on the session (a broker starts and is not registered yet): a command that
        finds it gone is repeated in the next one, instead of ending with SessionExpired."""
        client.add_listener(self._state_changed)

    @classmethod
    async def connect(
        cls, address: str, *, session_timeout_ms: int, wait_ms: int, preferred: Collection[str] = ()
    ) -> Self:
        """Open a session, and make the chroot if it is missing. Servers of `preferred` are tried first.

        Raises ZooKeeperUnavailable.
        """
        hosts, slash, chroot = address.partition("/")
        client = open_client(hosts, session_timeout_ms, preferred=preferred)
        zookeeper = cls(client, asyncio.get_running_loop(), address)
        waiting = zookeeper._loop.call_later(
            _TELL_AFTER_S, _log.warning, _WAITING, hosts, _TELL_AFTER_S, wait_ms
        )
        live = client.start_async()
        try:
            if not await asyncio.to_thread(live.wait, wait_ms / 1000):
                raise ZooKeeperUnavailable(
                    f"no ZooKeeper reachable at {hosts} within {wait_ms} ms (zookeeper.connection.timeout.ms)"
                )
        except BaseException:
            live.set()  # else the thread that waits holds up the end of a process that is stopped meanwhile
            await zookeeper.close()
            raise
        finally:
            waiting.cancel()
        if slash and chroot:
            await zookeeper.make_path("/" + chroot)
            client.chroot = "/" + chroot.rstrip("/")
        return zookeeper

    @staticmethod
    async def end_session(address: str, session_id: int, password: bytes) -> None:
        """End a session of an earlier process, so that its ephemeral nodes go at once; best effort."""
        client = open_client(address.partition("/")[0], 2000, (session_id, password))
        with contextlib.suppress(KazooTimeoutError):
            await asyncio.to_thread(client.start, 2.0)
        await asyncio.to_thread(client.stop)
        await asyncio.to_thread(client.close)

    async def close(self) -> None:
        self._closing = True
        await asyncio.to_thread(self._client.stop)
        await asyncio.to_thread(self._client.close)

    # -- session

    @property
    def session_id(self) -> int:
        """Number of the current session, as nodes name their owner; 0 without one."""
        identity = self._client.client_id
        return 0 if identity is None or identity[0] is None else int(identity[0])

    @property
    def session_password(self) -> bytes:
        """What proves to ZooKeeper that the session is ours."""
        identity = self._client.client_id
        return b"" if identity is None else bytes(identity[1])

    @property
    def session_timeout_s(self) -> float:
        """As the ensemble has granted it, which may be less or more than was asked for."""
        return float(self._client.negotiated_ms) / 1000

    async def heard(self) -> bool:
        """Whether the ensemble's leader has answered a question of this session."""
        try:
            await self._once("/", lambda: self._client.sync_async("/"))
        except (*_LOST, SessionExpired):
            return False
        return True

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    async def wait_connected(self) -> None:
        """Until there is a session that is connected."""
        await self._connected.wait()

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        """`callback(event)` runs in the event loop."""
        self._listeners.append(callback)

    def _state_changed(self, state: str) -> None:
        self._to_loop(self._session_state, state)

    def _session_state(self, state: str) -> None:
        if self._closing:
            return
        if state == KazooState.CONNECTED:
            event = SessionEvent.RENEWED if self._expired else SessionEvent.RESUMED
            self._expired = False
            self._connected.set()
        else:
            self._connected.clear()
            lost = state == KazooState.LOST
            self._expired = self._expired or lost
            event = SessionEvent.EXPIRED if lost else SessionEvent.SUSPENDED
        for listener in self._listeners:
            listener(event)

    def _to_loop(self, function: Callable[..., object], *arguments: object) -> None:
        """Run a function in the event loop; a loop that has ended wants nothing any more."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    # -- reading

    async def get(self, path: str, watch: Watch | None = None) -> Node | None:
        """The node, or None. A watch on a missing node is not set: use `exists`."""
        try:
            data, stat = await self._retried(path, lambda: self._client.get_async(path, self._wrap(watch)))
        except NoNode:
            return None
        return node_of(data, stat)

    async def get_many(self, wanted: Sequence[str]) -> list[Node | None]:
        """Nodes in the order of `wanted`, with one request for many; servers before 3.6 get one for each."""
        found: list[Node | None] = []
        for start in range(0, len(wanted), _IN_ONE_REQUEST):
            part = wanted[start : start + _IN_ONE_REQUEST]
            if self._reads_many:
                try:
                    found += await self._get_part(part)
                    continue
                except kazoo_errors.UnimplementedError:
                    self._reads_many = False
            found += await asyncio.gather(*(self.get(path) for path in part))
        return found

    async def _get_part(self, part: Sequence[str]) -> list[Node | None]:
        def start() -> Any:
            answer = self._client.handler.async_result()
            root = self._client.chroot
            self._client._call(MultiRead([root + path for path in part]), answer)
            return answer

        nodes: list[Node | None] = []
        for path, answer in zip(part, await self._retried(part[0], start), strict=True):
            if isinstance(answer, kazoo_errors.NoNodeError):
                nodes.append(None)
            elif isinstance(answer, Exception):
                raise translated(path, answer)
            else:
                nodes.append(node_of(*answer))
        return nodes

    async def exists(self, path: str, watch: Watch | None = None) -> bool:
        """Whether the node is there; the watch also fires when it appears."""
        stat = await self._retried(path, lambda: self._client.exists_async(path, self._wrap(watch)))
        return stat is not None

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names of the children; none for a missing node, whose watch is not set."""
        try:
            names = await self._retried(
                path, lambda: self._client.get_children_async(path, self._wrap(watch))
            )
        except NoNode:
            return []
        return [str(name) for name in names]

    def _wrap(self, watch: Watch | None) -> Callable[[object], None] | None:
        return None if watch is None else Waker(self._to_loop, watch)

    # -- writing

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        """Create a node. Raises NodeExists, NoNode (no parent)."""
        retried = False
        while True:
            try:
                await self._once(path, lambda: self._client.create_async(path, data, ephemeral=ephemeral))
                return
            except _LOST:
                retried = True
                await self._pause()
            except NodeExists:
                if retried and await self._is_ours(path, data, ephemeral):
                    return
                raise

    async def create_sequential(self, path: str, data: bytes = b"") -> str:
        """Create a node with a number appended; returns its path. A lost answer may leave one node more."""
        created = await self._retried(path, lambda: self._client.create_async(path, data, sequence=True))
        return str(created)

    async def set(self, path: str, data: bytes, version: int = -1) -> int:
        """Write a node that has `version` (-1 = any); returns the new version. Raises BadVersion, NoNode."""
        retried = False
        while True:
            try:
                stat = await self._once(path, lambda: self._client.set_async(path, data, version))
                return int(stat.version)
            except _LOST:
                retried = True
                await self._pause()
            except BadVersion:
                node = await self.get(path) if retried else None
                if node is not None and node.version == version + 1 and node.data == data:
                    return node.version
                raise

    async def delete(self, path: str, version: int = -1) -> None:
        """Delete a node without children. Raises NoNode, NotEmpty, BadVersion."""
        retried = False
        while True:
            try:
                await self._once(path, lambda: self._client.delete_async(path, version))
                return
            except _LOST:
                retried = True
                await self._pause()
            except NoNode:
                if retried:
                    return
                raise

    async def delete_tree(self, path: str) -> None:
        """Delete a node and all below it; a missing one is fine."""
        while True:
            for name in await self.children(path):
                await self.delete_tree(f"{path}/{name}")
            try:
                await self.delete(path)
            except NoNode:
                return
            except NotEmpty:
                continue
            return

    async def make_path(self, path: str) -> None:
        """Create a node and its parents where missing."""
        built = ""
        for name in path.strip("/").split("/"):
            built += "/" + name
            try:
                await self.create(built)
            except NodeExists:
                continue

    async def put(self, path: str, data: bytes) -> None:
        """Write a node whether or not it exists, with its parents."""
        while True:
            try:
                await self.set(path, data)
                return
            except NoNode:
                await self.make_path(path.rpartition("/")[0])
            try:
                await self.create(path, data)
                return
            except NodeExists:
                continue

    async def transaction(self, operations: Sequence[Operation]) -> list[Any]:
        """All operations or none. Raises the first failed operation's error.

        Not retried: after a lost connection the caller looks at what is there (SessionExpired is raised for
        both, since either way the caller's knowledge is gone).
        """
        request = self._client.transaction()
        for operation in operations:
            add(request, operation)
        path = operations[-1].path
        try:
            results = await self._once(path, request.commit_async)
        except _LOST:
            raise SessionExpired(f"{path}: connection lost while writing") from None
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, kazoo_errors.RolledBackError):
                continue
            if isinstance(result, Exception):
                raise translated(operation.path, result)
        return list(results)

    # -- plumbing

    async def _is_ours(self, path: str, data: bytes, ephemeral: bool) -> bool:
        node = await self.get(path)
        return node is not None and node.data == data and (not ephemeral or node.owner == self.session_id)

    async def _retried(self, path: str, start: Callable[[], Any]) -> Any:
        while True:
            try:
                return await self._once(path, start)
            except _LOST:
                await self._pause()

    async def _pause(self) -> None:
        """Until connected again; the session may turn out expired, which the next try says."""
        try:
            async with asyncio.timeout(1.0):
                await self._connected.wait()
        except TimeoutError:
            pass
        await asyncio.sleep(_RETRY_PAUSE_S)

    async def _once(self, path: str, start: Callable[[], Any]) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()

        def finished(result: Any) -> None:
            self._to_loop(settle, future, result)

        start().rawlink(finished)
        try:
            return await future
        except tuple(ERRORS) as error:
            failure = translated(path, error)
            if isinstance(failure, SessionExpired) and self.any_session and not self._closing:
                _log.warning("%s: the ZooKeeper session has ended, once more with the next one", path)
                raise kazoo_errors.ConnectionLoss from None  # as whoever repeats knows it
            raise failure from None
