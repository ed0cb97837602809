"""All benchmarks, one after the other: `python -m bench [NAME …]`; each also runs alone, with options."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

NAMES = ("processes", "log", "records", "codec", "broker", "replicated", "partitions", "link")


def main() -> int:
    names = sys.argv[1:] or [name for name in NAMES if importlib.util.find_spec(f"bench.{name}")]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    failed = []
    for name in names:
        print(f"\n== bench.{name}\n", flush=True)
        done = subprocess.run([sys.executable, "-m", f"bench.{name}"], cwd=Path(__file__).parents[1])
        if done.returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
