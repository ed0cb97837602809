"""How commands speak: one table printer, one JSON printer, one way to fail (with `--json` too)."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.exceptions import TyperException

FAILED, USAGE, DIFFERENCES = 1, 2, 3
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_OF_A_CELL = re.compile(rf"\t|\n|{_UNPRINTABLE.pattern}")


def printable(text: str) -> str:
    """With control characters written out, but for ends of lines and tabs: names, keys and what other
    programs answer come from anywhere, and would steer the terminal. So are bytes of file names that are no
    UTF-8."""
    return _UNPRINTABLE.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def say(text: str) -> None:
    typer.echo(printable(text))


def note(text: str) -> None:
    """Progress and remarks: to standard error, so that standard output stays clean for pipes."""
    typer.echo(printable(text), err=True)


class Failed(typer.Exit):
    """The end of a command by `fail`."""

    def __init__(self, message: str, code: int, told: bool) -> None:
        super().__init__(code)
        self.message = message
        self.told = told


def fail(message: str, code: int = FAILED, *, told: bool = False) -> NoReturn:
    """Say why on standard error, and end. `told`: what `--json` prints is printed, and holds it."""
    typer.echo(f"isthmus: {printable(message)}", err=True)
    raise Failed(message, code, told)


def print_error(error: Failed | TyperException) -> None:
    """What ended a command, for `--json`: a line, as it may stand behind records. `to_do` is as the error had
    it that was caught; it is part of the message as well."""
    message = error.message if isinstance(error, Failed) else error.format_message()
    cause = error.__context__
    found = {
        "message": message.replace("\nisthmus: ", "\n"),
        "to_do": str(getattr(cause, "to_do", "")),
        "exit_code": error.exit_code,
    }
    typer.echo(json.dumps({"error": found}))


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, default=str))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Columns are as wide as their longest cell; None prints as `-`; numbers stand right."""
    cells = [
        ["-" if cell is None else _OF_A_CELL.sub(_written_out, str(cell)) for cell in row] for row in rows
    ]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
    numeric = [
        bool(rows) and all(isinstance(row[i], int | float) or row[i] is None for row in rows)
        for i in range(len(columns))
    ]
    for row in [list(columns), *cells]:
        parts = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        typer.echo("  ".join(parts).rstrip())


def confirm(plan: str, *, yes: bool) -> None:
    """Show what will happen and ask; without a terminal `--yes` is required."""
    note(plan)
    if yes:
        return
    if not sys.stdin.isatty():
        fail("nothing done: this needs a yes; say --yes to do it without asking", USAGE)
    try:
        agreed = typer.confirm("Do it?", err=True)
    except typer.Abort as error:  # Ctrl-C as well as Ctrl-D
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        agreed = False
    if not agreed:
        fail("nothing done")
