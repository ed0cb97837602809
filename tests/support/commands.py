"""`isthmus …` as a process of its own, as people run it: to its end at once, or begun, and ended later."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
BOUND_S = 120.0


def isthmus(*words: object, text: str = "", timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """`text` is its standard input."""
    return subprocess.run(
        _command(words),
        cwd=ROOT,
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


async def begun(*words: object, env: Mapping[str, str] | None = None) -> Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*_command(words), stdout=pipe, stderr=pipe, cwd=ROOT, env=env)


async def ended(process: Process, bound_s: float = BOUND_S) -> tuple[int | None, str, str]:
    """(exit code, output, errors)"""
    async with asyncio.timeout(bound_s):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@contextlib.asynccontextmanager
async def replicating(*words: object) -> AsyncIterator[Process]:
    """`isthmus replicate …` while the body runs; then it is stopped, if that has not been done."""
    process = await begun("replicate", *words)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await ended(process)


def _command(words: tuple[object, ...]) -> list[str]:
    return [sys.executable, "-m", "isthmus", *map(str, words)]
