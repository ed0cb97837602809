"""Faults for a while, and what arrives is what was sent; with a rule switched off it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.links import holes, judge
from tests.chaos.links.broken import RULES
from tests.chaos.links.run import run
from tests.support.slow import slow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
_MINUTES = slow("takes minutes")


@_MINUTES
def test_links_under_faults(tmp_path: Path) -> None:
    report = run(tmp_path, seed=20_261_128, seconds=60)
    assert report.is_right, report
    assert report.records > 1_000
    assert sum(report.faults.values()) >= 3


@_MINUTES
@pytest.mark.parametrize("mode", ["one_name", "letting_go", "losing"])
def test_links_under_faults_whose_topics_are_otherwise(tmp_path: Path, mode: str) -> None:
    report = run(tmp_path, seed=20_261_201, seconds=60, **{mode: True})
    assert report.is_right, report
    assert report.records > 1_000
    assert bool(report.missed) == (mode == "letting_go"), "some is gone before a link reads it"


@_MINUTES
@pytest.mark.parametrize("rule", sorted(RULES))
def test_without_a_rule_its_anomaly_is_found(tmp_path: Path, rule: str) -> None:
    broken = RULES[rule]
    report = run(
        tmp_path,
        seed=1,
        seconds=60,
        kinds=broken.faults,
        program=("tests.chaos.links.broken", rule),
        audit=False,
        **({broken.mode: True} if broken.mode else {}),
    )
    assert report.anomalies[broken.shows], report


def test_each_rule_says_what_it_shows() -> None:
    for rule in RULES.values():
        assert rule.shows in (holes if rule.mode == "letting_go" else judge).ANOMALIES
