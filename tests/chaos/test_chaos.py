"""Faults for a while, and nothing is lost, doubled or out of order; with a rule switched off something is.

With ISTHMUS_SLOW=1 each of the four rules is switched off once; two are not found every time yet.
"""

import os
from pathlib import Path

import pytest

from tests.chaos.run import run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
_NOT_EVERY_TIME = pytest.mark.xfail(strict=False, reason="found by luck of timing only, see docs/status.md")
_SLOW = pytest.mark.skipif(os.environ.get("ISTHMUS_SLOW") != "1", reason="set ISTHMUS_SLOW=1")


def test_three_brokers_under_faults(tmp_path: Path) -> None:
    report = run(tmp_path, seed=20_261_128, seconds=30)
    assert report.is_right, report
    assert report.acknowledged > 200
    assert sum(report.faults.values()) >= 2


@pytest.mark.parametrize(
    ("rule", "fault", "seconds"),
    [
        ("high_watermark", "kill_ahead", 12),
        pytest.param("truncation", "kill_ahead", 40, marks=[_SLOW, _NOT_EVERY_TIME]),
        pytest.param("min_isr", "lose_tail", 20, marks=_SLOW),
        pytest.param("epoch_fencing", "late_orders", 40, marks=[_SLOW, _NOT_EVERY_TIME]),
    ],
)
def test_without_a_rule_an_anomaly_is_found(tmp_path: Path, rule: str, fault: str, seconds: float) -> None:
    report = run(tmp_path, seed=1, seconds=seconds, kinds=[fault], lanes=1, broken=rule)
    assert any(report.anomalies.values()), report
