"""A benchmark that cannot hang: rows that take too long or fail are given up and leave nothing running."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from bench.broker import measured
from bench.brokers.limits import RowFailed, TimeLeft, at_most, client
from bench.brokers.report import Row, bound, line

_ENDLESS = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"


def _row() -> Row:
    return bound("fine", {"figure": 1.0}, value=1.0, must_max=2)


def test_a_step_that_hangs_costs_its_own_row_only() -> None:
    def hangs() -> Row:
        threading.Event().wait(600)
        return _row()

    began = time.monotonic()
    (row,) = measured("stuck", hangs, 0.2, TimeLeft(60))
    assert time.monotonic() - began < 60
    assert row["name"] == "stuck"
    assert "not done within 0.2 s" in line(row)
    assert measured("fine", _row, 60, TimeLeft(60)) == [_row()]


def test_rows_of_a_generator_are_limited_too() -> None:
    def rows() -> Iterator[Row]:
        yield _row()
        threading.Event().wait(600)

    (row,) = measured("stuck", rows, 0.2, TimeLeft(60))
    assert "not_measured" in row


def test_a_failure_of_the_load_is_a_row_and_a_defect_is_not() -> None:
    def fails() -> Row:
        raise RowFailed("the client did not start")

    def defect() -> Row:
        raise KeyError("mb_s")

    assert "the client did not start" in line(measured("load", fails, 60, TimeLeft(60))[0])
    with pytest.raises(KeyError):
        measured("load", defect, 60, TimeLeft(60))


def test_when_the_run_is_over_the_rest_is_named() -> None:
    (row,) = measured("late", _row, 60, TimeLeft(0))
    assert "the time of the whole run is over" in line(row)


def test_a_client_that_never_ends_is_killed_with_its_children() -> None:
    children: list[psutil.Process] = []

    def run() -> None:
        with at_most(5), client([sys.executable, "-c", _ENDLESS]) as process:
            while not children:
                children.extend(psutil.Process(process.pid).children())
                time.sleep(0.01)  # the limit around it is the bound
            process.wait()

    began = time.monotonic()
    with pytest.raises(RowFailed):
        run()
    assert time.monotonic() - began < 60
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]


def test_no_alarm_is_left_behind() -> None:
    with at_most(60):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
