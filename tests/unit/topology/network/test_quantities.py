"""Times, shares and rates as people write them."""

import pytest

from topology.network.quantities import duration, rate, share, show_duration, show_rate, show_share


def test_what_people_write() -> None:
    assert [duration(text) for text in ("10ms", "1.5s", "250us", "0", 0)] == [0.01, 1.5, 0.00025, 0, 0]
    assert [share(text) for text in ("0.1%", "0.001", 0, 0.5)] == [0.001, 0.001, 0, 0.5]
    assert [rate(text) for text in ("100mbit", "10MB/s", "none", None)] == [12.5e6, 10e6, None, None]


@pytest.mark.parametrize("text", ["10", "ms", "-1ms", "1 hour", "nan", "", True])
def test_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        duration(text)


@pytest.mark.parametrize("text", ["100%", "1", "2ms", "-1%"])
def test_no_share(text: str) -> None:
    with pytest.raises(ValueError, match="is not a share"):
        share(text)


@pytest.mark.parametrize("text", ["100", "0mbit", "fast"])
def test_no_rate(text: str) -> None:
    with pytest.raises(ValueError, match="bandwidth"):
        rate(text)


def test_what_is_shown_can_be_written() -> None:
    assert duration(show_duration(0.0105)) == 0.0105
    assert duration(show_duration(2.5)) == 2.5
    assert share(show_share(0.015)) == pytest.approx(0.015)
    assert rate(show_rate(12.5e6)) == 12.5e6
    assert rate(show_rate(None)) is None
