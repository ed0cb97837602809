"""`python -m tests.interop [SUITE …]`: run foreign suites one after the other, one report card for all.

Finds suites by their `run.py` and knows nothing else about them. Writes `build/interop/report.json`: `suites`
as `suite.py` describes them. Ends with 1 when an allow-listed test failed anywhere; one that cannot run is
named.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MISSING = 77


def suites() -> list[str]:
    """Folders that can be run, by name."""
    return sorted(path.parent.name for path in HERE.glob("*/run.py"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(suites())}")
    parser.add_argument("--quick", action="store_true", help="the short cut of each")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "interop")
    given = parser.parse_args()
    unknown = sorted(set(given.suites) - set(suites()))
    if unknown:
        parser.error(f"no suite {', '.join(unknown)}: there are {', '.join(suites())}")
    cards, codes = [], {}
    for suite in given.suites or suites():
        card = given.out / f"{suite}.json"
        card.unlink(missing_ok=True)
        command = [sys.executable, "-m", f"tests.interop.{suite}.run", "--json", str(card)]
        codes[suite] = subprocess.run(
            [*command, *(["--quick"] * given.quick)], cwd=ROOT, check=False
        ).returncode
        if card.exists():
            cards.append(json.loads(card.read_text()))
    given.out.mkdir(parents=True, exist_ok=True)
    report = given.out / "report.json"
    report.write_text(json.dumps({"suites": cards, "exit_codes": codes}, indent=1) + "\n")
    print(f"\n{'suite':<16}{'passed':>8}{'failed':>8}{'skipped':>8}  result")
    for suite, code in codes.items():
        found = next((card for card in cards if card["suite"] == suite), None)
        numbers = [str(found[key]) if found else "-" for key in ("passed", "failed", "skipped")]
        result = {0: "as allow-listed", MISSING: "NOT RUN: " + str(found and found["missing"])}.get(
            code, f"an allow-listed test did not pass (exit code {code})"
        )
        print(f"{suite:<16}{numbers[0]:>8}{numbers[1]:>8}{numbers[2]:>8}  {result}")
    print(f"written to {report}")
    return int(any(code not in (0, MISSING) for code in codes.values()))


if __name__ == "__main__":
    sys.exit(main())
