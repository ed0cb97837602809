"""The event loop's time slice, asked of the kernel; what older kernels do not know is skipped aloud."""

from __future__ import annotations

import subprocess
import sys

import pytest

_LOOK = """
import sys, threading
from broker.time_slice import KERNELS_OWN, SLICE_NS, shorten, slice_ns
before = slice_ns()
if not before:
    print("unknown")
    sys.exit()
assert shorten() and slice_ns() == SLICE_NS, slice_ns()
found = []
thread = threading.Thread(target=lambda: found.append(slice_ns(threading.get_native_id())))
thread.start()
thread.join()
assert found == [SLICE_NS], found
assert shorten(KERNELS_OWN) and slice_ns() == before, slice_ns()
print("short")
"""


def test_short_slices_are_asked_for_and_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", _LOOK], capture_output=True, text=True, check=False)
    if done.stdout.strip() == "unknown":
        pytest.skip("this kernel has no time slices of single threads (Linux before 6.12)")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "short", "")
