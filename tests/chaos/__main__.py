"""One run of the faults, a report of what clients saw; exit code 1 on an anomaly.

    python -m tests.chaos [--minutes 3] [--seed N]

The report goes to build/chaos/report.json; `--seed` repeats the schedule of an earlier run.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from tests.chaos.broken import RULES
from tests.chaos.run import run

REPORT = Path("build/chaos/report.json")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=None, help="of an earlier run, to do the same again")
    parser.add_argument(
        "--broken", choices=sorted(RULES), help="switch a safety rule off: anomalies must show"
    )
    options = parser.parse_args()
    seed = random.randrange(1 << 31) if options.seed is None else options.seed
    print(f"seed {seed}, {options.minutes:g} minutes", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        zookeeper = EmbeddedZooKeeper(Path(directory) / "zookeeper").start()
        try:
            report = run(
                Path(directory),
                zookeeper.connect,
                seed=seed,
                seconds=60 * options.minutes,
                broken=options.broken,
                say=lambda text: print(text, flush=True),
            )
        finally:
            zookeeper.stop()
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(report.as_json(), indent=2) + "\n")
    print(json.dumps(report.as_json(), indent=2))
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
