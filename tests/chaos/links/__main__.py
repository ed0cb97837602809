"""One run of faults against links, a report of what arrived; exit code 1 on an anomaly.

    python -m tests.chaos.links [--minutes 3] [--seed N] [--faults kill_worker,cut_path] [--workers 2]
                                [--exactly-once] [--one-name | --letting-go | --losing]
                                [--source kafka] [--broken RULE] [--keep DIR]

With `--one-name` both sides write to topics of the same names (`origin_headers`). With `--source kafka` the
cluster `east` is Apache Kafka 4.3: source of one link, target of the other. With `--letting-go` records are
deleted at the sources, some before a link has read them: what is missing has to be on record. With `--losing`
targets lose acknowledged records of mirrors, by unclean elections: they have to be copied again.
The report goes to build/chaos/links.json; `--seed` repeats the schedule of an earlier run.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.chaos.links.broken import RULES
from tests.chaos.links.run import run
from tests.chaos.links.schedule import LANES, LETTING_GO, LOSING
from tests.chaos.options import finish, seed_of
from tests.chaos.options import parser as options_of

REPORT = Path("build/chaos/links.json")


def main() -> int:
    parser = options_of("python -m tests.chaos.links", __doc__, {**LETTING_GO, **LOSING}, LANES)
    parser.add_argument("--workers", type=int, default=1, help="processes of each link")
    parser.add_argument("--exactly-once", action="store_true", help="links with exactly_once: true")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--one-name", action="store_true", help="links with naming: identity and origin_headers: true"
    )
    mode.add_argument("--letting-go", action="store_true", help="sources that let go of records")
    mode.add_argument(
        "--losing", action="store_true", help="targets that lose acknowledged records of mirrors"
    )
    parser.add_argument(
        "--source", choices=["isthmus", "kafka"], default="isthmus", help="what the cluster east is made of"
    )
    parser.add_argument("--broken", choices=sorted(RULES), help="links with this rule switched off")
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
            workers=options.workers,
            program=("tests.chaos.links.broken", options.broken) if options.broken else ("isthmus",),
            link_settings={"exactly_once": True} if options.exactly_once else None,
            one_name=options.one_name,
            letting_go=options.letting_go,
            losing=options.losing,
            apache="east" if options.source == "kafka" else None,
            audit=not options.no_audit,
            say=lambda text: print(text, flush=True),
        )
    return finish(report, REPORT)


if __name__ == "__main__":
    sys.exit(main())
