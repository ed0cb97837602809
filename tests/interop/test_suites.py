"""The short cut of every foreign suite: what its tests.allow marks `quick` passes against our broker."""

import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_SUITES = sorted(path.parent.name for path in _HERE.glob("*/run.py"))
_MISSING = 77

# The first run downloads and builds; on a machine of two cores that takes minutes.
pytestmark = [pytest.mark.interop, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("suite", _SUITES)
def test_short_cut(suite: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"tests.interop.{suite}.run", "--quick"],
        cwd=_HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    if done.returncode == _MISSING:
        pytest.skip(done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
