"""Roles change under faults, and nothing is lost that was not saved; with a rule switched off it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.mirrors.broken import RULES
from tests.chaos.mirrors.judge import ANOMALIES
from tests.chaos.mirrors.operator import ACTS
from tests.chaos.mirrors.run import run
from tests.support.slow import slow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
_MINUTES = slow("takes minutes")


@_MINUTES
def test_mirrors_under_faults(tmp_path: Path) -> None:
    report = run(tmp_path, seed=20_261_130, seconds=90)
    assert report.is_right, report
    assert report.records > 1_000
    assert sum(report.acts.values()) >= 2


@_MINUTES
@pytest.mark.parametrize("rule", sorted(RULES))
def test_without_a_rule_its_anomaly_is_found(tmp_path: Path, rule: str) -> None:
    broken = RULES[rule]
    report = run(
        tmp_path,
        seed=1,
        seconds=90,
        kinds=broken.faults,
        acts=broken.acts,
        program=("tests.chaos.mirrors.broken", rule),
        audit=False,
    )
    assert report.anomalies[broken.shows], report


def test_each_rule_says_what_it_shows() -> None:
    assert all(rule.shows in ANOMALIES and set(rule.acts) <= set(ACTS) for rule in RULES.values())
