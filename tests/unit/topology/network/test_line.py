"""The model of a line with a clock of its own: delay, order, bandwidth, loss, cuts, windows."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.network.line import MSS, RETRANSMISSION_TIMEOUT_S, WINDOW, Line, LineSettings
from topology.network.stream import Mark, Stream


def line(back: LineSettings | None = None, *, chance: float = 0.5, **settings: float | bool | None) -> Line:
    made = Line(LineSettings(**settings), lambda: chance)  # type: ignore[arg-type]
    made.opposite = Line(back if back is not None else made.settings, lambda: chance)
    made.opposite.opposite = made
    return made


def test_what_is_sent_arrives_after_the_delay_and_not_before() -> None:
    stream = Stream(line(delay_s=0.01))
    stream.send(1.0, b"a")
    assert stream.arrived(1.009) == []
    assert stream.next_arrival() == pytest.approx(1.01)
    assert stream.arrived(1.0101) == [b"a"]
    assert stream.next_arrival() is None


@given(
    st.lists(st.tuples(st.floats(0, 0.01), st.binary(min_size=1, max_size=9)), max_size=50),
    st.floats(0, 0.5),
    st.integers(0, 1000),
)
def test_jitter_and_loss_keep_the_order_and_lose_no_byte(
    pieces: list[tuple[float, bytes]], loss: float, seed: int
) -> None:
    made = Line(LineSettings(delay_s=0.01, jitter_s=0.02, loss=loss), random.Random(seed).random)
    stream = Stream(made)
    now, found = 0.0, b""
    for pause, data in pieces:
        now += pause
        stream.send(now, data)
        found += b"".join(item for item in stream.arrived(now) if isinstance(item, bytes))
    found += b"".join(item for item in stream.arrived(now + 60) if isinstance(item, bytes))
    assert found == b"".join(data for _, data in pieces)
    assert stream.under_way == 0


def test_connections_share_the_bandwidth_of_a_line() -> None:
    shared = line(bandwidth=1000.0)
    one, other = Stream(shared), Stream(shared)
    one.send(0.0, bytes(500))
    other.send(0.0, bytes(500))
    assert one.next_arrival() == pytest.approx(0.5)
    assert other.next_arrival() == pytest.approx(1.0)


def test_a_lost_packet_is_a_time_out_alone_and_a_round_trip_in_a_flow() -> None:
    lossy = line(delay_s=0.02, loss=0.1, chance=0.0)
    assert lossy.arrival(0.0, 100) == pytest.approx(0.02 + RETRANSMISSION_TIMEOUT_S + 0.04)
    assert lossy.arrival(0.0, 10 * MSS) == pytest.approx(0.02 + 0.04)
    assert line(delay_s=0.02, loss=0.1, chance=0.99).arrival(0.0, 100) == pytest.approx(0.02)


def test_a_cut_line_holds_data_openings_and_ends_until_it_is_healed() -> None:
    made = line(delay_s=0.01)
    stream = Stream(made)
    stream.send(0.0, b"under way")
    made.change(LineSettings(delay_s=0.01, up=False))
    stream.replan(0.005)
    stream.send(0.006, b"later")
    stream.send(0.007, Mark.END)
    assert stream.next_arrival() is None
    assert stream.arrived(1e6) == []
    made.change(LineSettings(delay_s=0.01))
    stream.replan(5.0)
    assert stream.arrived(5.0101) == [b"under way", b"later", Mark.END]


def test_a_sender_waits_when_a_window_is_under_way() -> None:
    stream = Stream(line(delay_s=0.05))
    stream.send(0.0, bytes(WINDOW // 2 - 1))
    assert not stream.full()
    stream.send(0.0, b"12")
    assert stream.full()
    stream.arrived(1.0)
    assert not stream.full()


def test_loss_narrows_the_window() -> None:
    fast, slow = line(delay_s=0.02), line(delay_s=0.02, loss=0.01)
    assert slow.window() < fast.window() / 100
    # Reno's average window of 1.22 / sqrt(p) packets, of which this direction has half
    assert slow.window() == pytest.approx(12.2 * MSS / 2, rel=0.01)


def test_a_cut_line_says_infinity() -> None:
    assert line(up=False).arrival(3.0, 1) == math.inf
