"""One run of the faults, a report of what clients saw; exit code 1 on an anomaly.

    python -m tests.chaos [--minutes 3] [--seed N] [--faults kill,pause] [--broken RULE]

The report goes to build/chaos/report.json; `--seed` repeats the schedule of an earlier run.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.chaos.broken import RULES
from tests.chaos.options import finish, seed_of
from tests.chaos.options import parser as options_of
from tests.chaos.run import run
from tests.chaos.schedule import LANES, WEIGHTS

REPORT = Path("build/chaos/report.json")


def main() -> int:
    parser = options_of("python -m tests.chaos", __doc__, WEIGHTS, LANES)
    parser.add_argument(
        "--broken", choices=sorted(RULES), help="switch a safety rule off and tell the story that needs it"
    )
    parser.add_argument(
        "--keep", type=Path, default=None, help="leave logs, data and the history in this directory"
    )
    options = parser.parse_args()
    seed = seed_of(options)
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
    return finish(report, REPORT)


if __name__ == "__main__":
    sys.exit(main())
