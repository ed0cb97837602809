"""`isthmus drill …`: run and check runbooks."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.interrupts import code_of_interrupted
from isthmus.output import USAGE, confirm, fail, note, print_json, print_table, say
from isthmus.topologies import DEFAULT_FILE, DataDirectory, open_runtime, open_topology

if TYPE_CHECKING:
    from dr_runbooks.engine import Outcome
    from dr_runbooks.models import Runbook, Step
    from topology.models import Topology

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Run and check runbooks.")
File = Annotated[Path, typer.Argument(help="runbook YAML", show_default=False)]
Parameter = Annotated[list[str] | None, typer.Option("--set", help="parameter name=value, repeatable")]


@app.command()
def run(
    runbook: File,
    topology: Annotated[Path, typer.Option("--topology", "-f", help="topology YAML")] = DEFAULT_FILE,
    parameter: Parameter = None,
    skip: Annotated[list[str] | None, typer.Option(help="leave out the step of this name")] = None,
    journal: Annotated[
        Path | None, typer.Option(help="journal file; by default in build/drill", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do it without asking")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="outcome for machines")] = False,
    data_directory: DataDirectory = None,
) -> None:
    """Run a runbook step by step with a journal; ends with 0 only when every step passed.

    Example: isthmus drill run dr_runbooks/failover.yaml --set lost=east --yes
    """
    from dr_runbooks.engine import Context

    opened = open_topology(topology, data_directory)
    loaded = _without(_load(runbook, parameter, opened), skip or [])
    confirm(_plan(loaded), yes=yes)
    context = Context(opened, open_runtime(opened), topology.resolve())
    path = journal or Path("build/drill") / f"{runbook.stem}-{time.strftime('%Y%m%dT%H%M%S')}.jsonl"
    try:
        outcome = asyncio.run(_run(context, loaded, path))
    except FileExistsError:
        fail(f"{path} is the journal of another run: name a new file with --journal", USAGE)
    except KeyboardInterrupt:
        note(f"journal: {path}")
        if loaded.way_back:
            note(f"the way back: {loaded.way_back.strip()}")
        fail(f"{loaded.title}: interrupted; nothing was rolled back", code_of_interrupted())
    if as_json:
        print_json(_outcome(outcome))
    note(f"journal: {path}")
    if loaded.way_back:
        note(f"the way back: {loaded.way_back.strip()}")
    if not outcome.passed:
        fail(f"{loaded.title}: failed after {outcome.seconds:.1f} s", told=True)
    say(f"{loaded.title}: passed in {outcome.seconds:.1f} s")


@app.command()
def check(runbook: File, parameter: Parameter = None) -> None:
    """Check a runbook and show its plan without running anything.

    Example: isthmus drill check dr_runbooks/failover.yaml
    """
    say(_plan(_load(runbook, parameter)))


@app.command()
def verbs() -> None:
    """List what a step can do (actions) and ask (probes).

    Example: isthmus drill verbs
    """
    import inspect

    from dr_runbooks.registry import verbs as registered

    rows = [
        (verb.kind, verb.name, ", ".join(list(inspect.signature(verb.function).parameters)[1:]), verb.summary)
        for verb in registered().values()
    ]
    print_table(("kind", "name", "arguments", "what"), rows)


def _load(file: Path, parameters: list[str] | None, topology: Topology | None = None) -> Runbook:
    from dr_runbooks.load import load_runbook
    from topology.problems import TopologyError

    values: dict[str, str] = {}
    for text in parameters or []:
        name, equals, value = text.partition("=")
        if not equals:
            fail(f"'{text}' is not name=value", USAGE)
        values[name] = value
    try:
        return load_runbook(file, values, topology)
    except TopologyError as error:
        fail(str(error), USAGE)


def _without(runbook: Runbook, skip: list[str]) -> Runbook:
    from dr_runbooks.load import unsaved

    names = [step.name for step in runbook.steps]
    for name in skip:
        if name not in names:
            fail(f"there is no step '{name}'; steps: {'; '.join(names)}", USAGE)
    kept = runbook.model_copy(
        update={"steps": tuple(step for step in runbook.steps if step.name not in skip)}
    )
    if problems := [message for _, message in unsaved(kept)]:
        fail(f"without {'; '.join(skip)}: {'; '.join(problems)}", USAGE)
    return kept


def _plan(runbook: Runbook) -> str:
    from dr_runbooks.registry import verbs as registered

    known = registered()

    def line(number: int, step: Step) -> str:
        moves = step.action is not None and known["action", step.verb].moves_something
        given = ", ".join(f"{name}={value}" for name, value in step.arguments.items())
        mark = " (moves or destroys something)" if moves else ""
        return f"  {number}. {step.name}: {step.verb} {given}{mark}"

    lines = [runbook.title, *(line(number, step) for number, step in enumerate(runbook.steps, 1))]
    if runbook.rollback:
        lines.append("Where a step fails:")
        lines += [line(number, step) for number, step in enumerate(runbook.rollback, 1)]
    if runbook.way_back:
        lines.append(f"The way back: {runbook.way_back.strip()}")
    return "\n".join(lines)


async def _run(context: Any, runbook: Runbook, path: Path) -> Outcome:
    from dr_runbooks.engine import Engine
    from dr_runbooks.journal import Journal

    with Journal(path) as journal:
        return await Engine(context, journal, report=note).run(runbook)


def _outcome(outcome: Outcome) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(outcome)
