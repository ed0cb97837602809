"""A ZooKeeper in memory with what the controller uses of it: versions, transactions, sessions, watches.

Each write of a session that a test interrupts asks first whether this is the moment (`Interruption`). A
killed session never answers again: whoever asks is cancelled, as its process would be gone.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from broker.control.zookeeper_types import (
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionExpired,
    Set,
)

T = TypeVar("T")
Watch = Callable[[], None]


class Fault(Enum):
    KILLED_BEFORE = "killed before it"
    KILLED_AFTER = "killed after it, before the answer"
    LOST_BEFORE = "connection lost before it"
    LOST_AFTER = "connection lost before the answer"

    @property
    def done(self) -> bool:
        return self in (Fault.KILLED_AFTER, Fault.LOST_AFTER)

    @property
    def kills(self) -> bool:
        return self in (Fault.KILLED_BEFORE, Fault.KILLED_AFTER)


@dataclass
class Interruption:
    """At the step number `at` (from 1; 0: never) comes `fault`. `taken` are the steps so far."""

    at: int = 0
    fault: Fault = Fault.KILLED_BEFORE
    counting: bool = False
    taken: list[str] = field(default_factory=list)

    def comes(self, step: str) -> Fault | None:
        if not self.counting:
            return None
        self.taken.append(step)
        return self.fault if len(self.taken) == self.at else None


class Tree:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.changes = 100
        """The zxid of the last one."""
        self._watches: dict[tuple[str, bool], dict[Watch, Session]] = defaultdict(dict)

    def children(self, path: str) -> list[str]:
        return sorted(name.rpartition("/")[2] for name in self.nodes if name.rpartition("/")[0] == path)

    def watch(self, path: str, session: Session, watch: Watch | None, *, children: bool = False) -> None:
        if watch is not None:
            self._watches[path, children][watch] = session

    def commit(self, operations: Sequence[Operation], owner: int = 0) -> None:
        """All of it or nothing."""
        nodes, changed = dict(self.nodes), set[tuple[str, bool]]()
        self.changes += 1
        for operation in operations:
            path = operation.path
            node = nodes.get(path)
            if isinstance(operation, Create):
                if node is not None:
                    raise NodeExists(f"{path} exists", path)
                if path.rpartition("/")[0] and path.rpartition("/")[0] not in nodes:
                    raise NoNode(f"no parent of {path}", path)
                mine = owner if operation.ephemeral else 0
                nodes[path] = Node(operation.data, 0, mine, self.changes, 0, self.changes)
                changed |= {(path, False), (path.rpartition("/")[0], True)}
                continue
            if node is None:
                raise NoNode(f"no {path}", path)
            if operation.version not in (-1, node.version):
                raise BadVersion(f"{path} has version {node.version}", path)
            if isinstance(operation, Set):
                nodes[path] = node._replace(
                    data=operation.data, version=node.version + 1, modified=self.changes
                )
                changed.add((path, False))
            elif isinstance(operation, Delete):
                if any(name.startswith(path + "/") for name in nodes):
                    raise NotEmpty(f"{path} has children", path)
                del nodes[path]
                changed |= {(path, False), (path, True), (path.rpartition("/")[0], True)}
            else:
                assert isinstance(operation, Check)
        self.nodes = nodes
        for key in changed:
            self._fire(self._watches.pop(key, {}))

    def end(self, session: Session) -> None:
        """A session is over: its ephemeral nodes go."""
        mine = [path for path, node in self.nodes.items() if node.owner == session.session_id]
        self.commit([Delete(path) for path in mine])

    def fire_all(self, session: Session) -> None:
        """A client that loses its connection wakes all who watch by it."""
        for watches in self._watches.values():
            mine = {watch: owner for watch, owner in watches.items() if owner is session}
            for watch in mine:
                del watches[watch]
            self._fire(mine)

    @staticmethod
    def _fire(watches: dict[Watch, Session]) -> None:
        for watch, session in watches.items():
            if not session.dead:
                asyncio.get_running_loop().call_soon(watch)


class Session:
    """What `broker.control.zookeeper.ZooKeeper` is for the controller."""

    address = "simulated"

    def __init__(self, tree: Tree, session_id: int, interruption: Interruption | None = None) -> None:
        self.session_id = session_id
        self.dead = False
        self.over = asyncio.Event()
        self._tree = tree
        self._interruption = interruption or Interruption()

    @property
    def connected(self) -> bool:
        return not self.dead

    def on_session(self, callback: Callable[..., None]) -> None:
        """Sessions here end by death alone."""

    def kill(self) -> None:
        if not self.dead:
            self.dead = True
            self.over.set()
            self._tree.end(self)

    # -- reading

    async def get(self, path: str, watch: Watch | None = None) -> Node | None:
        await self._turn()
        node = self._tree.nodes.get(path)
        if node is not None:
            self._tree.watch(path, self, watch)
        return node

    async def get_many(self, wanted: Sequence[str]) -> list[Node | None]:
        await self._turn()
        return [self._tree.nodes.get(path) for path in wanted]

    async def exists(self, path: str, watch: Watch | None = None) -> bool:
        await self._turn()
        self._tree.watch(path, self, watch)
        return path in self._tree.nodes

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        await self._turn()
        if path in self._tree.nodes:
            self._tree.watch(path, self, watch, children=True)
        return self._tree.children(path)

    # -- writing

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        await self._write([Create(path, data, ephemeral)])

    async def delete(self, path: str, version: int = -1) -> None:
        await self._write([Delete(path, version)])

    async def transaction(self, operations: Sequence[Operation]) -> list[Any]:
        await self._write(operations, may_be_lost=True)
        return []

    async def _write(self, operations: Sequence[Operation], *, may_be_lost: bool = False) -> None:
        """Single writes whose answer is lost are tried again by the real client itself."""
        await self._turn()
        what = " ".join(f"{type(each).__name__} {each.path}" for each in operations)
        fault = self._interruption.comes(what)
        if fault is None or not (fault.kills or may_be_lost):
            self._tree.commit(operations, self.session_id)
            return
        if fault.done:
            self._tree.commit(operations, self.session_id)
        if fault.kills:
            self.kill()
            raise asyncio.CancelledError
        self._tree.fire_all(self)
        raise SessionExpired(f"{what}: connection lost while writing")

    async def _turn(self) -> None:
        await asyncio.sleep(0)
        if self.dead:
            raise asyncio.CancelledError
