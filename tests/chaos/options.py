"""What runs of faults have in common on the command line: their options, the seed, the report at the end."""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Protocol


class Report(Protocol):
    @property
    def is_right(self) -> bool: ...
    def as_json(self) -> dict[str, Any]: ...


def parser(prog: str, text: str | None, faults: Collection[str], lanes: int) -> argparse.ArgumentParser:
    """With --minutes, --seed, --faults and --lanes."""
    made = argparse.ArgumentParser(
        prog=prog, description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--minutes", type=float, default=3.0)
    made.add_argument("--seed", type=int, default=None, help="of an earlier run, to do the same again")
    made.add_argument("--faults", type=_kinds(faults), default=None, help=f"some of: {', '.join(faults)}")
    made.add_argument("--lanes", type=int, default=lanes, help="how many faults at once")
    return made


def seed_of(options: argparse.Namespace) -> int:
    """The one that was given, else a new one; it is said, so that the run can be repeated."""
    seed: int = random.randrange(1 << 31) if options.seed is None else options.seed
    print(f"seed {seed}, {options.minutes:g} minutes", flush=True)
    return seed


def finish(report: Report, path: Path) -> int:
    """Stores and prints the report; the exit code."""
    text = json.dumps(report.as_json(), indent=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    print(text)
    return 0 if report.is_right else 1


def _kinds(faults: Collection[str]) -> Callable[[str], list[str]]:
    def kinds(text: str) -> list[str]:
        named = [kind.strip() for kind in text.split(",")]
        unknown = sorted(set(named) - set(faults))
        if unknown:
            raise argparse.ArgumentTypeError(
                f"no such fault: {', '.join(unknown)}; there are {', '.join(faults)}"
            )
        return named

    return kinds
