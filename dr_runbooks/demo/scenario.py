"""The demonstration from start to end: a topology under load loses a datacenter and gets it back.

Owns the order of things and what is measured when. Figures come from the applications' own histories, from
the clusters and from the commands' JSON, each from one place. Whatever happens, every process and thread that
was started is ended before `run` returns.
"""

from __future__ import annotations

import asyncio
import fcntl
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dr_runbooks.clients import write_client_config
from dr_runbooks.demo.child import isthmus_json
from dr_runbooks.demo.data import flight_rows, weather_rows
from dr_runbooks.demo.measure import compare_consumed, recovery_point
from dr_runbooks.demo.producer import TableProducer
from dr_runbooks.demo.reader import GroupReader
from dr_runbooks.demo.report import AUDIT_CLASSES, Report
from dr_runbooks.engine import Context, Engine, Outcome
from dr_runbooks.journal import Journal
from dr_runbooks.load import load_runbook
from protocol.client import EARLIEST, LATEST, ClusterClient
from protocol.types import TopicPartition
from topology.control import ControlServer
from topology.load import load_topology
from topology.supervisor import AlreadyRunning, Supervisor

RUNBOOKS = Path(__file__).parent.parent
GROUP = "flight-board"
FLIGHTS, WEATHER = "flights", "weather"
MIRRORED = "east.flights"


class DemoFailed(Exception):
    """The demonstration could not go on; the message says in which phase and why."""


@dataclass(frozen=True)
class Options:
    file: Path
    directory: Path
    rows: int | None = None
    """Of the flights table; all by default."""
    rate: float = 12_000.0
    """Flights per second: about half a minute of load."""


class Demo:
    def __init__(self, options: Options, report: Callable[[str], None]) -> None:
        self._options = options
        self._say = report
        self._state = options.directory / "state"
        topology = load_topology(options.file)
        self._topology = topology.model_copy(update={"data_directory": self._state})
        self._supervisor: Supervisor | None = None
        self._phase = "start"
        self.report = Report()

    async def run(self) -> Report:
        """Raises DemoFailed; a broken promise is not a failure but stands in the report."""
        started = time.monotonic()
        report = self.report
        objective = self._topology.objectives[FLIGHTS]
        report.rpo_objective, report.rto_objective = objective.rpo_seconds, objective.rto_seconds
        try:
            async with AsyncExitStack() as stack:
                await self._phases(stack)
        except (AlreadyRunning, asyncio.CancelledError):
            raise
        except Exception as error:
            raise DemoFailed(f"in phase '{self._phase}': {error}") from error
        report.wall_seconds = time.monotonic() - started
        return report

    async def _phases(self, stack: AsyncExitStack) -> None:
        async with self._timed("start", "starting two datacenters"):
            self._forget_last_run()
            await self._start(stack)
        async with self._timed("load", "writing flights to east and weather to west, reading flights"):
            flights, weather, reader = self._load(stack)
            await self._until(
                lambda: flights.acked >= flights.total * 0.45, 120, "half of the flights", flights, reader
            )
        async with self._timed("failover", "losing east, failing its readers over to west"):
            await self._fail_over(flights, reader)
        async with self._timed("return", "bringing east back, letting both links drain"):
            await self._bring_back(flights, weather, reader)
        async with self._timed("audit", "auditing flights against east.flights on Spark"):
            self.report.audit_mirror = await self._audit(["--link", "east->west", "--topic", FLIGHTS])
        async with self._timed("backup", "backing up flights and the group's offsets, restoring both"):
            backup_id = await self._back_up_and_restore()
        async with self._timed("audit restore", "auditing the backup against the restored topic on Spark"):
            self.report.audit_restore = await self._audit(
                ["--backup", FLIGHTS, "--id", backup_id, "--to", "restore", "--topic", FLIGHTS]
            )
        async with self._timed("resume", "letting the group go on in the restored cluster"):
            await self._resume(stack)
        assert self._supervisor is not None
        self.report.restarts = sum(int(row["restarts"] or 0) for row in self._supervisor.status())

    # Start and load

    def _forget_last_run(self) -> None:
        """Removes what the last demonstration left, unless it is still running."""
        lock = self._state / "supervisor.lock"
        if lock.exists():
            with lock.open("a") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise AlreadyRunning(f"another demo is running in {self._options.directory}") from None
        shutil.rmtree(self._state, ignore_errors=True)

    async def _start(self, stack: AsyncExitStack) -> None:
        supervisor = Supervisor(self._topology, self._options.file.resolve(), report=self._note)
        self._supervisor = supervisor
        await supervisor.start()
        stack.push_async_callback(supervisor.stop)
        control = ControlServer(supervisor)
        await control.start()
        stack.push_async_callback(control.close)

    def _load(self, stack: AsyncExitStack) -> tuple[TableProducer, TableProducer, GroupReader]:
        flight_count, flights = flight_rows(self._options.rows)
        weather_count, weather = weather_rows()
        produce_flights = TableProducer(
            self._bootstrap("east"), FLIGHTS, flights, flight_count, self._options.rate
        )
        slower = self._options.rate * weather_count / flight_count
        produce_weather = TableProducer(self._bootstrap("west"), WEATHER, weather, weather_count, slower)
        write_client_config(self._clients, "east", self._bootstrap("east"), [FLIGHTS])
        reader = GroupReader(self._clients, GROUP)
        for thread in (produce_flights, produce_weather, reader):
            thread.start()
            stack.push_async_callback(asyncio.to_thread, thread.stop)
        self._reader = reader
        return produce_flights, produce_weather, reader

    # The loss and the return

    async def _fail_over(self, flights: TableProducer, reader: GroupReader) -> None:
        outcome = await self._drill("failover", {"client_config": str(self._clients)})
        lost_at, gone_at = float(outcome.saved["lost"]["at"]), float(outcome.saved["lost"]["done_at"])
        generation = int(outcome.saved["pointed"]["generation"])
        await self._until(lambda: generation in reader.first_read_at, 30, "a record read from west")
        report = self.report
        report.rto_seconds = reader.first_read_at[generation] - lost_at
        copied = {int(key): offset for key, offset in outcome.saved["held"]["next_offsets"][FLIGHTS].items()}
        report.rpo = recovery_point(
            flights.acked_partition, flights.acked_offset, flights.acked_at, copied, gone_at
        )
        self._note(
            f"RPO {report.rpo.records:,} records ({report.rpo.seconds:.2f} s), RTO {report.rto_seconds:.2f} s"
        )

    async def _bring_back(self, flights: TableProducer, weather: TableProducer, reader: GroupReader) -> None:
        await self._drill("return", {})
        await self._until(
            lambda: not flights.is_alive() and not weather.is_alive(),
            120,
            "the end of producing",
            flights,
            reader,
        )
        await self._drill("drained", {})
        report = self.report
        report.produced, report.acknowledged = flights.sent, flights.acked
        report.weather_produced = weather.acked
        report.produce_errors = [*flights.failed, *weather.failed]
        report.east = await self._count("east", FLIGHTS)
        report.west = await self._count("west", MIRRORED)
        report.weather_mirrored = await self._count("east", f"west.{WEATHER}")
        deadline = time.monotonic() + 60
        while True:
            report.consumed = compare_consumed(flights.sent_fingerprints, reader.read_fingerprints)
            if report.consumed.missing == 0 or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.5)
        await asyncio.to_thread(reader.stop)
        self._note(f"the group missed {report.consumed.missing:,}, saw {report.consumed.duplicates:,} twice")

    # Backup, restore, resume

    async def _back_up_and_restore(self) -> str:
        assert self._supervisor is not None
        made = await self._command("backup", ["backup", "create", FLIGHTS])
        self.report.backup_objects, self.report.backup_bytes = made["objects"], made["bytes"]
        await self._supervisor.start_parts(["restore"])
        await self._command("restore", ["restore", FLIGHTS, "--id", made["backup_id"], "--to", "restore"])
        self.report.restored = await self._count("restore", FLIGHTS)
        backup_id: str = made["backup_id"]
        return backup_id

    async def _resume(self, stack: AsyncExitStack) -> None:
        async with ClusterClient(self._bootstrap("restore"), client_id="isthmus-demo") as client:
            spots = [
                TopicPartition(FLIGHTS, index)
                for index in range(self._topology.clusters["east"].topics[FLIGHTS].partitions)
            ]
            committed = await client.committed(GROUP, spots)
            ends = await client.list_offsets(dict.fromkeys(spots, LATEST))
        if not committed:
            raise DemoFailed(f"group {GROUP} has no offsets in the restored cluster")
        expected = sum(
            ends[spot].offset - (committed[spot].offset if spot in committed else 0) for spot in spots
        )
        self.report.resumed_expected = expected
        config = self._options.directory / "state" / "clients-restore.json"
        write_client_config(config, "restore", self._bootstrap("restore"), [FLIGHTS])
        reader = GroupReader(config, GROUP)
        reader.start()
        stack.push_async_callback(asyncio.to_thread, reader.stop)
        await self._until(lambda: reader.read >= expected, 60, f"{expected:,} records read after the restore")
        self.report.resumed_records = reader.read
        self._note(f"the group went on and read the {reader.read:,} records behind its offsets")

    # Tools

    @property
    def _clients(self) -> Path:
        return self._state / "clients.json"

    def _bootstrap(self, cluster: str) -> str:
        assert self._supervisor is not None
        return self._supervisor.runtime.bootstrap_servers(self._topology, cluster)

    async def _drill(self, name: str, parameters: dict[str, Any]) -> Outcome:
        assert self._supervisor is not None
        runbook = load_runbook(RUNBOOKS / f"{name}.yaml", parameters)
        context = Context(self._topology, self._supervisor.runtime, self._options.file)
        with Journal(self._state / f"{name}.jsonl") as journal:
            outcome = await Engine(context, journal, report=self._say).run(runbook)
        if not outcome.passed:
            reasons = "; ".join(f"{step.name}: {step.error}" for step in outcome.steps if step.error)
            raise DemoFailed(f"the runbook '{runbook.title}' failed: {reasons}")
        return outcome

    async def _audit(self, arguments: list[str]) -> dict[str, int]:
        found = await self._command("audit", ["audit", *arguments], accepted=(0, 1, 3))
        figures = {name: int(found[name]) for name in AUDIT_CLASSES}
        self._note("   ".join(f"{name} {count:,}" for name, count in figures.items()))
        return figures

    async def _command(self, log: str, arguments: list[str], accepted: tuple[int, ...] = (0,)) -> Any:
        self._note(f"isthmus {' '.join(arguments)}")
        place = ["--topology", str(self._options.file), "--data-directory", str(self._state), "--json"]
        return await isthmus_json([*arguments, *place], self._state / "logs" / f"command-{log}.log", accepted)

    async def _count(self, cluster: str, topic: str) -> int:
        async with ClusterClient(self._bootstrap(cluster), client_id="isthmus-demo") as client:
            metadata = await client.metadata([topic])
            spots = [TopicPartition(topic, index) for index in metadata.topics[topic].partitions]
            ends = await client.list_offsets(dict.fromkeys(spots, LATEST))
            starts = await client.list_offsets(dict.fromkeys(spots, EARLIEST))
        return sum(ends[spot].offset - starts[spot].offset for spot in spots)

    async def _until(
        self,
        condition: Callable[[], bool],
        bound_s: float,
        what: str,
        producer: TableProducer | None = None,
        reader: GroupReader | None = None,
    ) -> None:
        started = shown = time.monotonic()
        while not condition():
            now = time.monotonic()
            if now - started > bound_s:
                raise DemoFailed(f"waited {bound_s:g} s for {what}")
            if producer is not None and reader is not None and now - shown >= 3:
                shown = now
                self._note(f"acknowledged {producer.acked:,} of {producer.total:,}, read {reader.read:,}")
            await asyncio.sleep(0.05)

    @asynccontextmanager
    async def _timed(self, phase: str, what: str) -> AsyncIterator[None]:
        self._phase = phase
        started = time.monotonic()
        self._say(f"[{len(self.report.phases) + 1}/8] {what}")
        try:
            yield
        finally:
            self.report.phases[phase] = time.monotonic() - started

    def _note(self, line: str) -> None:
        self._say(f"      {line}")
