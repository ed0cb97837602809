"""Half a minute of faults: nothing lost, nothing twice, nothing out of order."""

from pathlib import Path

import pytest

from tests.chaos.run import run

pytestmark = pytest.mark.cluster


def test_three_brokers_under_faults(tmp_path: Path, zookeeper: str) -> None:
    report = run(tmp_path, zookeeper, seed=20_261_128, seconds=30)
    assert report.is_right, report
    assert report.acknowledged > 500
    assert sum(report.faults.values()) >= 1
