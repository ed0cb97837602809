"""Runs `isthmus` commands as a person would, and takes their JSON; they never outlive this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from topology.process import PARENT_VARIABLE


class CommandFailed(Exception):
    """An isthmus command ended with an unexpected exit code; the message has its last words."""


async def isthmus_json(arguments: list[str], log: Path, accepted: tuple[int, ...] = (0,)) -> Any:
    """What the command printed as JSON. Its standard error goes to `log`. Cancelling ends the command."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "isthmus",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
        )
        try:
            output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.terminate()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), 20)  # Spark takes its time
            if process.returncode is None:
                process.kill()
                await process.wait()
    try:
        found = json.loads(output)
    except ValueError:
        found = None
    if process.returncode not in accepted or (isinstance(found, dict) and "error" in found):
        words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
        raise CommandFailed(
            f"isthmus {' '.join(arguments)} ended with {process.returncode} (log: {log}): {' / '.join(words)}"
        )
    if found is None:
        raise CommandFailed(f"isthmus {' '.join(arguments)} printed no JSON: {output[-300:]!r}")
    return found
