"""Log lines about peers that do wrong: one for each, limited, and nobody hides another's."""

from __future__ import annotations

import logging

import pytest

from broker.line_limit import REMEMBERED
from broker.server.context import ConnectionInfo
from broker.server.offences import LONGEST, PER_ADDRESS, PER_SECOND, Offences
from tests.support.clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def offences(clock: VirtualClock) -> Offences:
    return Offences(clock.monotonic)


def lines(caplog: pytest.LogCaptureFixture, host: str = "") -> list[str]:
    return [each.getMessage() for each in caplog.records if f"from {host}" in each.getMessage()]


def test_a_hostile_client_does_not_hide_anothers_line(
    offences: Offences, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for port in range(1000):
            offences.say("closing connection", ConnectionInfo("10.0.0.66", port), "nonsense")
        offences.say("closing connection", ConnectionInfo("10.0.0.1", 9), "key 999")
    assert len(lines(caplog, "10.0.0.66")) == PER_ADDRESS
    assert lines(caplog, "10.0.0.1:9") == ["closing connection from 10.0.0.1:9 on PLAINTEXT: key 999"]


def test_the_next_line_counts_those_left_out(
    offences: Offences, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for port in range(PER_ADDRESS + 7):
            offences.say("closing connection", ConnectionInfo("10.0.0.66", port), "nonsense")
        clock.advance(1.0)
        for _ in range(2):
            offences.say("closing connection", ConnectionInfo("10.0.0.66", 1), "nonsense")
    *_, first, second = lines(caplog)
    assert first.endswith("nonsense (7 more like this were not logged)")
    assert second.endswith("nonsense")


def test_many_addresses_share_a_limit_and_little_is_remembered(
    offences: Offences, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for number in range(10 * REMEMBERED):
            offences.say("closing connection", ConnectionInfo(f"fe80::{number:x}", 1), "nonsense")
    assert len(lines(caplog)) == PER_SECOND
    assert len(offences._limit._skipped) <= REMEMBERED
    clock.advance(1.0)
    offences.say("closing connection", ConnectionInfo("fe80::1", 1), "nonsense")
    assert len(offences._limit._said) == 1


def test_a_long_name_from_a_stranger_is_no_long_line(
    offences: Offences, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        offences.say("closing connection", ConnectionInfo("10.0.0.66", 1), f"no user {'x' * 500_000}")
    (line,) = lines(caplog)
    assert len(line) < LONGEST + 200
    assert line.endswith("xxx... (500008 characters)")
