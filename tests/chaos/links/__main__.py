"""One run of faults against links, a report of what arrived; exit code 1 on an anomaly.

    python -m tests.chaos.links [--minutes 3] [--seed N] [--faults kill_worker,cut_path] [--workers 2]
                                [--exactly-once] [--broken RULE] [--keep DIR]

The report goes to build/chaos/links.json; `--seed` repeats the schedule of an earlier run.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos.links.broken import RULES
from tests.chaos.links.run import run
from tests.chaos.links.schedule import LANES, WEIGHTS

REPORT = Path("build/chaos/links.json")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.links",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=None, help="of an earlier run, to do the same again")
    parser.add_argument("--faults", type=_kinds, default=None, help=f"some of: {', '.join(WEIGHTS)}")
    parser.add_argument("--lanes", type=int, default=LANES, help="how many faults at once")
    parser.add_argument("--workers", type=int, default=1, help="processes of each link")
    parser.add_argument("--exactly-once", action="store_true", help="links with exactly_once: true")
    parser.add_argument("--broken", choices=sorted(RULES), help="links with this rule switched off")
    parser.add_argument("--no-audit", action="store_true", help="without Spark")
    parser.add_argument("--keep", type=Path, default=None, help="leave logs and data in this directory")
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
            workers=options.workers,
            program=("tests.chaos.links.broken", options.broken) if options.broken else ("isthmus",),
            link_settings={"exactly_once": True} if options.exactly_once else None,
            audit=not options.no_audit,
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
