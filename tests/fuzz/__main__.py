"""Every target for its share of the minutes, beginning from the corpus: `python -m tests.fuzz --minutes 4`.

What coverage finds is kept in build/fuzz/<target>/ for the next run. A crasher ends its target; it is copied
to tests/fuzz/corpus/<target>/crash-… so that `make test` replays it from then on. Exit 1 when there was one.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from tests.fuzz.corpus import CORPUS, TARGETS

BUILD = Path("build/fuzz")
_SLOWEST_INPUT_S = 30
_MEMORY_MB = 2048


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=4.0, help="for all targets together")
    parser.add_argument("--target", action="append", choices=TARGETS, help="only these")
    given = parser.parse_args()
    targets = given.target or list(TARGETS)
    seconds = max(1, int(given.minutes * 60 / len(targets)))
    crashed = [name for name in targets if not _fuzz(name, seconds)]
    print(f"fuzz: {len(targets)} targets, {seconds} s each; crashers: {', '.join(crashed) or 'none'}")
    return 1 if crashed else 0


def _fuzz(name: str, seconds: int) -> bool:
    found, crashes = BUILD / name, BUILD / "crashes" / name
    found.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(parents=True, exist_ok=True)
    known = set(crashes.iterdir())
    seeds = CORPUS / name
    command = [
        *(sys.executable, "-m", "tests.fuzz.drive", name, f"-max_total_time={seconds}"),
        *(f"-timeout={_SLOWEST_INPUT_S}", f"-rss_limit_mb={_MEMORY_MB}", "-max_len=8192"),
        *(f"-artifact_prefix={crashes}/", "-print_final_stats=1", str(found), str(seeds)),
    ]
    with (BUILD / f"{name}.log").open("wb") as output:
        code = subprocess.run(command, stdout=output, stderr=output, check=False).returncode
    for crash in set(crashes.iterdir()) - known:
        shutil.copy(crash, seeds / crash.name)
        print(f"{name}: {crash.name}, see {BUILD / name}.log")
    lines = (BUILD / f"{name}.log").read_text(errors="replace").splitlines()
    stats = [line for line in lines if "stat::" in line]
    print(f"{name}: exit {code}; {'; '.join(line.removeprefix('stat::') for line in stats[:2])}", flush=True)
    return code == 0


if __name__ == "__main__":
    sys.exit(main())
