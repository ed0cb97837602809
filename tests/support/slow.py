"""Tests that take too long for every `make test`: run with ISTHMUS_SLOW=1, skipped aloud without."""

import os

import pytest

SLOW = os.environ.get("ISTHMUS_SLOW") == "1"


def slow(reason: str) -> pytest.MarkDecorator:
    """`reason` says what takes the time, or what covers it meanwhile."""
    return pytest.mark.skipif(not SLOW, reason=f"{reason}: ISTHMUS_SLOW=1 runs it")
