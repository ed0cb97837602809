"""What a runbook can do. Each function's arguments are what its step may say under `with`.

Processes are started and killed through the running supervisor; on machines that isthmus does not run, use
`run_command` with your own tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
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
async def run_command(context: Context, command: list[str], exit_codes: list[int] | None = None) -> Result:
    """Run a program of the operator's, which cannot ask anything; it ends with 0 or one of `exit_codes`.

    What it says goes to a file: a pipe would be waited for as long as something it left running has it.
    """
    with tempfile.TemporaryFile() as output:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise StepFailed(f"cannot run {command[0]}: {error.strerror}") from None
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # what it has started too
                await process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace").strip()
    if code not in (exit_codes or [0]):
        raise StepFailed(f"{' '.join(command)} ended with {code}: {text[-500:]}")
    return {"exit_code": code, "output": text[-2000:]}


async def _control(context: Context, verb: str, parts: list[str]) -> Result:
    at = time.time()
    try:
        names = await request(context.runtime, verb, parts)
    except (ControlError, NotRunning) as error:
        raise StepFailed(str(error)) from None
    return {"processes": names, "at": at, "done_at": time.time()}
