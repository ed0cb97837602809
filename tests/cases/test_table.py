"""The table of cases and traps names tests that are there."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NAMED = sorted(set(re.findall(r"`(tests/[\w/.:]+)`", (HERE / "README.md").read_text())))


@pytest.mark.parametrize("named", NAMED)
def test_what_the_table_names_is_there(named: str) -> None:
    path, _, test = named.partition("::")
    assert (ROOT / path).exists()
    if test:
        assert re.search(rf"def {test}\(", (ROOT / path).read_text())
