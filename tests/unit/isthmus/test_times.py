"""Moments on the command line."""

import time

import pytest
import typer

from isthmus.times import moment_ms, shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T08:00Z", 1769846400000),
        ("2026-01-31T09:00:00.250+01:00", 1769846400250),
        ("1769846400000", 1769846400000),
        ("1970-01-01T00:00Z", 0),
    ],
)
def test_a_moment_is_read(text: str, expected: int) -> None:
    assert moment_ms(text, "--time") == expected


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15m ago", 900), ("1.5h", 5400), ("2d", 172800)])
def test_a_duration_is_so_long_ago(text: str, seconds: float) -> None:
    assert abs(moment_ms(text, "--time") - (time.time() - seconds) * 1000) < 5000


@pytest.mark.parametrize(
    "text", ["yesterday", "20260131", "", "-5", "9" * 30 + "d", "9" * 30, "1969-07-20T20:17Z", "1e400s"]
)
def test_what_is_none_is_a_usage_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        moment_ms(text, "--time", "earliest, ")
    assert ended.value.exit_code == 2
    said = capsys.readouterr().err
    assert said.startswith(
        f"isthmus: --time '{text}' is not understood; say earliest, a time (2026-01-31T08:00"
    )


def test_seconds_are_not_taken_for_milliseconds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        moment_ms("1769846400", "--time")
    assert "13 digits (1769846400000?)" in capsys.readouterr().err


def test_a_moment_is_shown_in_utc_and_nonsense_as_it_is() -> None:
    assert shown(1769846400250) == "2026-01-31T08:00:00.250Z"
    assert shown(2**62) == str(2**62)
    assert shown(None) is None
