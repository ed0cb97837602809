"""`isthmus up FILE`: run a topology in the foreground until Ctrl-C or `isthmus down`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.output import fail, note, print_table, say

if TYPE_CHECKING:
    from topology.models import Topology


def up(file: Annotated[Path, typer.Argument(help="topology YAML", show_default=False)]) -> None:
    """Start every process of a topology on this machine and keep it running.

    What dies is started again; Ctrl-C (or isthmus down FILE) stops everything, the data stays.
    Ends with 1 if something cannot start or it is stopped before all is ready, with 2 for a wrong file.

    Example: isthmus up examples/two-datacenters.yaml
    """
    from isthmus.topologies import open_topology
    from protocol.errors import ProtocolError
    from topology.process import ProcessFailed
    from topology.runtime import DirectoryUnusable
    from topology.supervisor import AlreadyRunning
    from topology.warnings import topology_warnings

    topology = open_topology(file)
    for warning in topology_warnings(topology):
        note(f"warning: {warning}")
    try:
        ready = asyncio.run(_run(topology, file.resolve()))
    except (AlreadyRunning, DirectoryUnusable) as error:
        fail(str(error).replace("isthmus down FILE", f"isthmus down {file}"))
    except (ProcessFailed, ProtocolError) as error:  # the latter: a declared topic was refused
        fail(f"could not start {topology.name}: {error}")
    if not ready:
        fail(f"{topology.name} was interrupted before it was ready; what had been started is stopped")
    say(f"{topology.name} stopped; its data stays in {topology.data_directory}")


async def _run(topology: Topology, file: Path) -> bool:
    """Whether it became ready before it was stopped."""
    from topology.control import ControlServer
    from topology.supervisor import Supervisor

    supervisor = Supervisor(topology, file, report=note)
    control = ControlServer(supervisor)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, control.down.set)
    starting = asyncio.create_task(supervisor.start())
    stopping = asyncio.create_task(control.down.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
            return False
        await starting
        await control.start()
        _show(supervisor.status(), topology, file)
        await stopping
        note("stopping …")
    finally:
        stopping.cancel()
        await control.close()
        await supervisor.stop()
    return True


def _show(status: list[dict[str, str | int | None]], topology: Topology, file: Path) -> None:
    columns = ("name", "datacenter", "state", "pid", "port", "metrics_port")
    print_table(columns, [[row[column] for column in columns] for row in status])
    say(f"isthmus topology {topology.name} ready; stop it with Ctrl-C or: isthmus down {file}")
