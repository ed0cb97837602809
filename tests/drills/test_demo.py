"""The demonstration, whole: its promises, interruptions in every phase, crashes in the middle."""

import os
import random
import signal
from pathlib import Path

import psutil
import pytest

from tests.drills.demo_run import demo, until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.s3,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

QUICK = ("--rows", "40000", "--rate", "3000")
ALL = "DEMO_ALL" in os.environ
"""Every phase and every process only on request: the default draws one; pytest-randomly's seed repeats it."""
PROCESSES = {
    "east-zookeeper": "east-zookeeper",
    "west-zookeeper": "west-zookeeper",
    "east-broker": "east-broker-1",
    "west-broker": "west-broker-2",
    "link-to-west": "--link east->west",
    "link-to-east": "--link west->east",
}
EARLY = range(1, 5)
"""Phases with the clusters at work; in phase 5 Spark runs."""


def test_every_promise_is_kept_twice_in_a_row(tmp_path: Path) -> None:
    with demo(tmp_path / "demo", *QUICK) as run:
        assert run.finish() == 0, run.output()
        report = run.report()
        assert report["records"]["produced"] == 40_000
        assert (
            report["records"]["east"] == report["records"]["west"] == report["records"]["restored"] == 40_000
        )
        assert report["consumed"]["missing"] == 0
        assert report["audit"]["mirror"]["compared"] == report["audit"]["restore"]["compared"] == 40_000
        assert report["rto"]["seconds"] > 0
        assert all(report["promises"].values())
        assert run.left_behind() == []
    # More than is written before the loss, or nothing is left that the group could read in west.
    with demo(tmp_path / "demo", "--rows", "8000", "--rate", "700") as again:
        assert again.finish() == 0, again.output()
        assert again.report()["records"]["produced"] == 8000


@pytest.mark.parametrize("phase", range(1, 9) if ALL else ("early", 5))
def test_an_interruption_leaves_no_process_behind(tmp_path: Path, phase: int | str) -> None:
    if phase == "early":
        phase = random.choice(EARLY)
    with demo(tmp_path / "demo", "--rows", "8000", "--rate", "1500") as run:
        run.wait_for(f"[{phase}/8]")
        until(lambda: phase != 5 or bool(run.descendants("pyspark")), 60)
        family = psutil.Process(run.process.pid).children(recursive=True)
        os.kill(run.process.pid, signal.SIGINT)
        assert run.finish(60) == 130, run.output()
        assert [process for process in family if process.is_running() and process.status() != "zombie"] == []
        assert "Traceback" not in run.output()
        until(lambda: run.left_behind() == [], 20)


@pytest.mark.parametrize("victim", sorted(PROCESSES) if ALL else ("any",))
def test_killing_a_process_under_load_ends_with_the_same_audit(tmp_path: Path, victim: str) -> None:
    if victim == "any":
        victim = random.choice(sorted(PROCESSES))
    with demo(tmp_path / "demo", *QUICK) as run:
        run.wait_for("      acknowledged ")
        for pid in run.pids(PROCESSES[victim]):
            with_children = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
            for process in with_children:
                process.kill()
        assert run.finish() == 0, run.output()
        report = run.report()
        assert report["restarts"] >= 1
        for audit in report["audit"].values():
            assert (audit["compared"], audit["lost"], audit["corrupt"], audit["reordered"]) == (
                40_000,
                0,
                0,
                0,
            )


def test_a_second_demo_in_the_same_place_is_refused(tmp_path: Path) -> None:
    with demo(tmp_path / "demo", *QUICK) as run:
        run.wait_for("[2/8]")
        with demo(tmp_path / "demo") as second:
            assert second.finish(30) == 1
        assert "another demo is running" in run.output()
        os.kill(run.process.pid, signal.SIGTERM)
        assert run.finish(60) == 130
