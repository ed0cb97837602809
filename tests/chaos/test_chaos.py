"""Faults for a while, and nothing is lost, doubled or out of order; with a rule switched off something is.

With ISTHMUS_SLOW=1 each of the four rules is switched off, and each has to be missed by name.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.chaos.broken import RULES
from tests.chaos.checker import ANOMALIES
from tests.chaos.directed import STORIES
from tests.chaos.run import run
from tests.support.slow import slow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
_ENDED_WITHIN_S = 430
_ALWAYS = "high_watermark"
"""The one that takes least time."""


def test_three_brokers_under_faults(tmp_path: Path) -> None:
    """In a process of its own, and once more if that hangs: a confluent-kafka that waits for ever with the
    interpreter's lock (`grouping.Member.leave`) would hold up all tests, time limits included.
    """
    for _ in range(2):
        ended, said = _chaos(tmp_path)
        if ended:
            break
    assert ended, said
    report = json.loads((tmp_path / "build/chaos/report.json").read_text())
    assert not any(report["anomalies"].values()), report
    assert not report["failures"], report
    assert report["acknowledged"] > 2000
    assert sum(report["faults"].values()) >= 10


def _chaos(folder: Path) -> tuple[bool, str]:
    """Whether a run of some minutes came to an end, and what it said."""
    command = [sys.executable, "-m", "tests.chaos", "--minutes", "2", "--seed", "20261128"]
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            return True, process.communicate(timeout=_ENDED_WITHIN_S)[0]
        except subprocess.TimeoutExpired:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
            return False, process.communicate()[0]


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(rule, marks=() if rule == _ALWAYS else slow("a story for each rule"))
        for rule in sorted(RULES)
    ],
)
def test_without_a_rule_an_anomaly_is_found(tmp_path: Path, rule: str) -> None:
    report = run(tmp_path, seed=1, seconds=0, broken=rule)
    # Without its rule a cluster need not heal: failures are not looked at.
    found = {name for name, count in report.anomalies.items() if count}
    assert STORIES[rule].shows <= found, report


def test_each_rule_has_a_story() -> None:
    assert set(STORIES) == set(RULES)
    assert all(story.shows <= set(ANOMALIES) for story in STORIES.values())
