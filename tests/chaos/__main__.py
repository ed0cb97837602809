"""One run of the faults, a report of what clients saw; exit code 1 on an anomaly.

    python -m tests.chaos [--minutes 3] [--seed N] [--faults kill,pause] [--broken RULE]

The report goes to build/chaos/report.json; `--seed` repeats the schedule of an earlier run.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos.broken import RULES
from tests.chaos.run import run
from tests.chaos.schedule import LANES, WEIGHTS

REPORT = Path("build/chaos/report.json")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=None, help="of an earlier run, to do the same again")
    parser.add_argument("--faults", type=_kinds, default=None, help=f"some of: {', '.join(WEIGHTS)}")
    parser.add_argument("--lanes", type=int, default=LANES, help="how many faults at once")
    parser.add_argument(
        "--broken", choices=sorted(RULES), help="switch a safety rule off and tell the story that needs it"
    )
    parser.add_argument(
        "--keep", type=Path, default=None, help="leave logs, data and the history in this directory"
    )
    options = parser.parse_args()
    seed = random.randrange(1 << 31) if options.seed is None else options.seed
    print(f"seed {seed}, {options.minutes:g} minutes", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        report = run(
            options.keep or Path(directory),
            seed=seed,
            seconds=60 * options.minutes,
            kinds=options.faults,
            lanes=options.lanes,
            broken=options.broken,
            keep_history=options.keep and options.keep / "history.pickle",
            say=lambda text: print(text, flush=True),
        )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report.as_json(), indent=2) + "\n")
    print(json.dumps(report.as_json(), indent=2))
    return 0 if report.is_right else 1


def _kinds(text: str) -> list[str]:
    kinds = [kind.strip() for kind in text.split(",")]
    unknown = sorted(set(kinds) - set(WEIGHTS))
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no such fault: {', '.join(unknown)}; there are {', '.join(WEIGHTS)}"
        )
    return kinds


if __name__ == "__main__":
    sys.exit(main())
