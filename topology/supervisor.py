"""Runs a whole topology on this machine: start in order, watch, restart what died, stop in order.

A process that dies without being asked is started again with growing pauses. What was stopped or killed on
request (`stop`, `kill`: a drill) stays down until `start`. One supervisor per data directory, held by a lock.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from topology.models import Topology
from topology.process import ProcessFailed, State, SupervisedProcess
from topology.processes import START_ORDER, ProcessSpec, process_specs
from topology.runtime import DirectoryUnusable, Runtime
from topology.topics import create_declared_topics

READY_TIMEOUT_S = 60.0
_PORT_ATTEMPTS = 3
_PORT_WAIT_S = 5.0
RESTART_PAUSE_S = (0.2, 0.5, 1.0, 2.0, 5.0)


class AlreadyRunning(Exception):
    """Another supervisor holds the data directory; the message names its pid."""


class UnknownPart(Exception):
    """A name is neither a process nor a cluster, link, object store or datacenter; lists what exists."""


class Supervisor:
    def __init__(
        self, topology: Topology, file: Path, *, report: Callable[[str], None] = lambda line: None
    ) -> None:
        self.topology = topology
        self.runtime = Runtime.load(topology.data_directory)
        self._file = file
        self._report = report
        self._lock: IO[str] | None = None
        self._specs: dict[str, ProcessSpec] = {}
        self._processes: dict[str, SupervisedProcess] = {}
        self._wanted: set[str] = set()
        self._restarts: dict[str, int] = {}
        self._busy = asyncio.Lock()
        self._watcher: asyncio.Task[None] | None = None
        self._restarting: dict[str, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Start everything that has autostart. Raises ProcessFailed, with nothing left running."""
        self._take_lock()
        try:
            for again in reversed(range(_PORT_ATTEMPTS)):
                self._choose()
                await self._declared_ports_are_free()
                if await self._start_all(again=bool(again)):
                    break
        except BaseException:
            await self.stop()
            raise
        self._watcher = asyncio.create_task(self._watch(), name="supervisor-watch")

    def _choose(self) -> None:
        """Ports, and with them the command lines."""
        self.runtime.choose_ports(self.topology)
        self.runtime.supervisor_pid = os.getpid()
        self.runtime.save()
        self._specs = process_specs(self.topology, self.runtime, self._file)
        logs = self.topology.data_directory / "logs"
        for name, spec in self._specs.items():
            self._processes[name] = SupervisedProcess(name, spec.command, logs / f"{name}.log")

    def _autostarted(self) -> list[str]:
        return [name for name, spec in self._specs.items() if spec.autostart]

    async def _declared_ports_are_free(self) -> None:
        """A supervisor that was killed a moment ago may have left processes that are just dying."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _PORT_WAIT_S
        while True:
            taken = self.runtime.taken_ports(self.topology, declared=True)
            wrong = [f"{port} ({name})" for name, port in taken if name in self._autostarted()]
            if not wrong:
                return
            if loop.time() >= end:
                raise ProcessFailed(
                    f"another program listens at port {', '.join(wrong)}: end it, or change that port"
                    f" in {self._file} (without one a free port is chosen); nothing was started"
                )
            await asyncio.sleep(0.1)

    async def _start_all(self, *, again: bool) -> bool:
        """False if a chosen port was taken by another program meanwhile, and it is worth to start again."""
        try:
            await self.start_parts(self._autostarted())
        except ProcessFailed:
            await self._end_all()
            lost = self.runtime.taken_ports(self.topology, declared=False)
            if not lost or not again:
                raise
            names = ", ".join(f"{port} ({name})" for name, port in lost)
            self._report(f"another program took port {names} meanwhile: starting again with other ports")
            return False
        return True

    async def stop(self) -> None:
        """End every process, last started first; the data stays."""
        self._wanted.clear()
        tasks = [*self._restarting.values(), *([self._watcher] if self._watcher else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._restarting.clear()
        self._watcher = None
        await self._end_all()
        if self._lock is not None:
            self.runtime.supervisor_pid = None
            self.runtime.save()
            self._lock.close()
            self._lock = None

    async def _end_all(self) -> None:
        """Every process, last started first."""
        self._wanted.clear()
        for kind in reversed(START_ORDER):
            names = [name for name, spec in self._specs.items() if spec.kind == kind]
            await asyncio.gather(*(self._processes[name].stop() for name in names if name in self._processes))

    async def start_parts(self, parts: Iterable[str]) -> None:
        """Start processes, clusters, links, stores or datacenters; what runs already is left alone."""
        names = self.resolve(parts)
        async with self._busy:
            self._wanted.update(names)
            for kind in START_ORDER:
                batch = [name for name in names if self._specs[name].kind == kind]
                await asyncio.gather(*(self._bring_up(name) for name in batch))
                if kind == "broker":
                    await self._declare_topics({self._specs[name].owner for name in batch})

    async def stop_parts(self, parts: Iterable[str]) -> None:
        await self._end(parts, kill=False)

    async def kill_parts(self, parts: Iterable[str]) -> None:
        """SIGKILL, as a power cut would; they stay down until `start_parts`."""
        await self._end(parts, kill=True)

    def resolve(self, parts: Iterable[str]) -> list[str]:
        """Process names, in start order, of a mix of process, cluster, link, store and datacenter names."""
        wanted: set[str] = set()
        for part in parts:
            found = {
                name
                for name, spec in self._specs.items()
                if part == name or part == spec.owner or part == f"datacenter:{spec.datacenter}"
            }
            if not found:
                known = sorted({*self._specs, *(spec.owner for spec in self._specs.values())})
                places = [f"datacenter:{place}" for place in self.topology.datacenters]
                raise UnknownPart(
                    f"there is no '{part}' in {self.topology.name}: {', '.join([*known, *places])}"
                )
            wanted |= found
        return [name for name in self._specs if name in wanted]

    def status(self) -> list[dict[str, str | int | None]]:
        return [
            {
                "name": name,
                "kind": spec.kind,
                "datacenter": spec.datacenter,
                "state": self._processes[name].state.value,
                "pid": self._processes[name].pid,
                "port": self.runtime.ports.get(name),
                "metrics_port": self.runtime.metrics_ports.get(name),
                "restarts": self._restarts.get(name, 0),
                "log": str(self._processes[name].log),
            }
            for name, spec in self._specs.items()
        ]

    async def _end(self, parts: Iterable[str], *, kill: bool) -> None:
        names = self.resolve(parts)
        self._wanted.difference_update(names)
        ends = [
            self._processes[name].kill() if kill else self._processes[name].stop() for name in reversed(names)
        ]
        await asyncio.gather(*ends)
        for name in names:
            self._report(f"{name} {'killed' if kill else 'stopped'}")

    async def _bring_up(self, name: str) -> None:
        process = self._processes[name]
        if process.pid is None:
            process.spawn()
            await process.wait_ready(READY_TIMEOUT_S)
            self._report(f"{name} ready (pid {process.pid})")

    async def _declare_topics(self, clusters: set[str]) -> None:
        for alias in sorted(clusters):
            topics = self.topology.clusters[alias].topics
            if topics:
                access = self.runtime.access(self.topology, alias)
                async with access.client("isthmus-topology") as client:
                    created = await create_declared_topics(client, topics)
                for topic in created:
                    self._report(f"{alias}: topic {topic} created")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            if self._busy.locked():
                continue
            self._restarting = {name: task for name, task in self._restarting.items() if not task.done()}
            for name in self._wanted - self._restarting.keys():
                code = self._processes[name].exit_code()
                if code is not None:
                    self._restarting[name] = asyncio.create_task(self._restart(name, code))

    async def _restart(self, name: str, code: int) -> None:
        process, count = self._processes[name], self._restarts.get(name, 0)
        self._report(f"{name} ended unexpectedly (exit code {code}); starting it again")
        await asyncio.sleep(RESTART_PAUSE_S[min(count, len(RESTART_PAUSE_S) - 1)])
        if name not in self._wanted:
            return
        self._restarts[name] = count + 1
        process.spawn()
        try:
            await process.wait_ready(READY_TIMEOUT_S)
        except ProcessFailed as error:
            process.state = State.FAILED
            self._report(str(error))
        else:
            self._report(f"{name} ready again (pid {process.pid})")

    def _take_lock(self) -> None:
        directory = self.topology.data_directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            lock = (directory / "supervisor.lock").open("a+")
        except OSError as error:
            raise DirectoryUnusable(directory, error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise AlreadyRunning(
                f"topology '{self.topology.name}' is already running (pid {self.runtime.supervisor_pid}, "
                f"data in {directory}): isthmus down FILE stops it"
            ) from None
        self._lock = lock
