"""`isthmus down FILE`: stop a running topology; its data stays."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
from pathlib import Path
from typing import Annotated

import typer

from isthmus.output import fail, say
from isthmus.topologies import DEFAULT_FILE

STOP_TIMEOUT_S = 60.0


def down(
    file: Annotated[Path, typer.Argument(help="topology YAML")] = DEFAULT_FILE,
) -> None:
    """Stop a topology that `isthmus up` started; its data stays and the next `up` goes on with it.

    Example: isthmus down examples/two-datacenters.yaml
    """
    from isthmus.topologies import open_runtime, open_topology, run_control
    from topology.control import request

    topology = open_topology(file)
    run_control(request(open_runtime(topology), "down"), file)
    if not asyncio.run(_released(topology.data_directory / "supervisor.lock")):
        fail(f"{topology.name} is still stopping after {STOP_TIMEOUT_S:g} s; isthmus status tells what runs")
    say(f"{topology.name} stopped; its data stays in {topology.data_directory}")


async def _released(lock: Path) -> bool:
    loop = asyncio.get_running_loop()
    end = loop.time() + STOP_TIMEOUT_S
    while loop.time() < end:
        with lock.open("a") as file, contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        await asyncio.sleep(0.1)
    return False
