"""What a runbook can do. Each function's arguments are what its step may say under `with`.

Processes are started and killed through the running supervisor; on machines that isthmus does not run, use
`run_command` with your own tools.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from dr_runbooks.clients import write_client_config
from dr_runbooks.engine import Context
from dr_runbooks.registry import Result, StepFailed, action
from topology.control import ControlError, request
from topology.runtime import NotRunning


@action(moves_something=True)
async def kill(context: Context, parts: list[str]) -> Result:
    """Kill processes, clusters, links, stores or `datacenter:NAME` with SIGKILL."""
    return await _control(context, "kill", parts)


@action(moves_something=True)
async def stop(context: Context, parts: list[str]) -> Result:
    """Stop the same cleanly."""
    return await _control(context, "stop", parts)


@action()
async def start(context: Context, parts: list[str]) -> Result:
    """Start the same and wait until they are ready."""
    return await _control(context, "start", parts)


@action(moves_something=True)
async def point_clients(context: Context, file: str, cluster: str, topics: list[str]) -> Result:
    """Point clients that watch `file` at another cluster and its topics."""
    bootstrap = context.runtime.bootstrap_servers(context.topology, cluster)
    config = write_client_config(Path(file), cluster, bootstrap, topics)
    return {"generation": config.generation, "bootstrap_servers": bootstrap, "at": time.time()}


@action(moves_something=True)
async def run_command(context: Context, command: list[str]) -> Result:
    """Run a program of the operator's; its exit code must be 0."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
    except OSError as error:
        raise StepFailed(f"cannot run {command[0]}: {error.strerror}") from None
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = output.decode(errors="replace").strip()
    if process.returncode != 0:
        raise StepFailed(f"{' '.join(command)} ended with {process.returncode}: {text[-500:]}")
    return {"output": text[-2000:]}


async def _control(context: Context, verb: str, parts: list[str]) -> Result:
    at = time.time()
    try:
        names = await request(context.runtime, verb, parts)
    except (ControlError, NotRunning) as error:
        raise StepFailed(str(error)) from None
    return {"processes": names, "at": at, "done_at": time.time()}
