"""One run of faults against mirrors that change roles, a report of what is left; exit code 1 on an anomaly.

    python -m tests.chaos.mirrors [--minutes 3] [--seed N] [--faults kill_broker,cut_path]
                                  [--source kafka] [--acts promote] [--broken RULE] [--keep DIR]

The report goes to build/chaos/mirrors.json; `--seed` repeats the schedule of an earlier run.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.chaos.links.schedule import LANES
from tests.chaos.mirrors.broken import RULES
from tests.chaos.mirrors.faults import OFTEN
from tests.chaos.mirrors.operator import ACTS
from tests.chaos.mirrors.run import run
from tests.chaos.options import finish, seed_of
from tests.chaos.options import parser as options_of

REPORT = Path("build/chaos/mirrors.json")


def main() -> int:
    parser = options_of("python -m tests.chaos.mirrors", __doc__, OFTEN, LANES)
    parser.add_argument("--source", choices=["isthmus", "kafka"], default="isthmus", help="the first source")
    parser.add_argument("--acts", nargs="+", choices=list(ACTS), default=[], help="changes of roles, of all")
    parser.add_argument("--broken", choices=sorted(RULES), help="with this rule switched off")
    parser.add_argument("--no-audit", action="store_true", help="without Spark")
    parser.add_argument("--keep", type=Path, default=None, help="leave logs and data in this directory")
    options = parser.parse_args()
    seed = seed_of(options)
    with tempfile.TemporaryDirectory() as directory:
        report = run(
            options.keep or Path(directory),
            seed=seed,
            seconds=60 * options.minutes,
            kinds=options.faults,
            lanes=options.lanes,
            acts=options.acts,
            program=("tests.chaos.mirrors.broken", options.broken) if options.broken else ("isthmus",),
            apache=options.source == "kafka",
            audit=not options.no_audit,
            say=lambda text: print(text, flush=True),
        )
    return finish(report, REPORT)


if __name__ == "__main__":
    sys.exit(main())
