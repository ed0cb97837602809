"""Faults for a while, and nothing is lost, doubled or out of order; with a rule switched off something is.

With ISTHMUS_SLOW=1 each of the four rules is switched off, and each has to be missed by name.
"""

import os
from pathlib import Path

import pytest

from tests.chaos.broken import RULES
from tests.chaos.checker import ANOMALIES
from tests.chaos.directed import STORIES
from tests.chaos.run import run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
_SLOW = pytest.mark.skipif(os.environ.get("ISTHMUS_SLOW") != "1", reason="set ISTHMUS_SLOW=1")
_ALWAYS = "high_watermark"
"""The one that takes least time."""


def test_three_brokers_under_faults(tmp_path: Path) -> None:
    report = run(tmp_path, seed=20_261_128, seconds=30)
    assert report.is_right, report
    assert report.acknowledged > 200
    assert sum(report.faults.values()) >= 2


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=() if rule == _ALWAYS else _SLOW) for rule in sorted(RULES)]
)
def test_without_a_rule_an_anomaly_is_found(tmp_path: Path, rule: str) -> None:
    report = run(tmp_path, seed=1, seconds=0, broken=rule)
    # Without its rule a cluster need not heal: failures are not looked at.
    found = {name for name, count in report.anomalies.items() if count}
    assert STORIES[rule].shows <= found, report


def test_each_rule_has_a_story() -> None:
    assert set(STORIES) == set(RULES)
    assert all(story.shows <= set(ANOMALIES) for story in STORIES.values())
