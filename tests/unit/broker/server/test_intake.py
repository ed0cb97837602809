"""The receive buffer gives back exactly the frames that went in, and an announced length costs nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.server.intake import GROWTH_STEP, KEPT, START, FrameBuffer, FrameSizeError

MAX_FRAME = 100 * 1024 * 1024


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def feed(buffer: FrameBuffer, data: bytes) -> int:
    """Put as much of `data` into the buffer as one read would; returns how much."""
    space = buffer.space()
    count = min(len(space), len(data))
    space[:count] = data[:count]
    buffer.received(count)
    return count


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 40), st.integers(0, 3 * START)), max_size=12),
    chunks=st.lists(st.integers(1, 2 * START), min_size=1, max_size=20),
    hold=st.booleans(),
)
def test_frames_come_out_as_they_went_in_whatever_the_reads_are(
    sizes: list[int], chunks: list[int], hold: bool
) -> None:
    bodies = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    stream = b"".join(framed(body) for body in bodies)
    buffer = FrameBuffer(MAX_FRAME)
    out: list[bytes] = []
    position = turn = 0
    while position < len(stream):
        moved = feed(buffer, stream[position : position + chunks[turn % len(chunks)]])
        position += moved
        turn += 1
        if hold and moved and turn % 3:
            continue  # frames are left in the buffer for a while, as behind a long poll
        while (frame := buffer.next_frame()) is not None:
            out.append(bytes(frame))
    while (frame := buffer.next_frame()) is not None:
        out.append(bytes(frame))
    assert out == bodies
    assert buffer.pending == 0


def test_an_announced_length_costs_no_memory_before_its_bytes_arrive() -> None:
    buffer = FrameBuffer(MAX_FRAME)
    feed(buffer, MAX_FRAME.to_bytes(4, "big"))
    for _ in range(3):
        assert buffer.next_frame() is None
        buffer.space()
    assert buffer.capacity <= 2 * START


def test_memory_follows_what_has_arrived_with_a_bounded_step() -> None:
    buffer = FrameBuffer(MAX_FRAME)
    arrived = feed(buffer, MAX_FRAME.to_bytes(4, "big"))
    while arrived < 40 * 1024 * 1024:
        space = buffer.space()
        assert buffer.capacity <= arrived + min(max(arrived, START), GROWTH_STEP)
        buffer.received(len(space))
        arrived += len(space)


def test_a_frame_of_exactly_the_limit_passes_and_its_memory_is_given_back() -> None:
    limit = 3 * KEPT
    buffer = FrameBuffer(limit)
    stream = framed(bytes(limit))
    position = 0
    while position < len(stream):
        position += feed(buffer, stream[position:])
    frame = buffer.next_frame()
    assert frame is not None
    assert len(frame) == limit
    buffer.space()
    assert buffer.capacity == START


@pytest.mark.parametrize("size", [-1, -(2**31), MAX_FRAME + 1, 2**31 - 1])
def test_impossible_lengths_are_refused(size: int) -> None:
    buffer = FrameBuffer(MAX_FRAME)
    feed(buffer, size.to_bytes(4, "big", signed=True) + b"rest")
    with pytest.raises(FrameSizeError, match="announced frame"):
        buffer.next_frame()


def test_whole_frames_that_fill_the_buffer_leave_no_room_until_they_are_taken() -> None:
    buffer = FrameBuffer(MAX_FRAME)
    stream = framed(b"x" * 1020) * 64
    position = 0
    while (moved := feed(buffer, stream[position:])) > 0 and position + moved < len(stream):
        position += moved
    assert len(buffer.space()) == 0
    assert buffer.capacity == START
    assert buffer.next_frame() is not None


def test_an_idle_buffer_gives_its_memory_back_and_goes_on_afterwards() -> None:
    buffer = FrameBuffer(MAX_FRAME)
    feed(buffer, framed(b"a") + b"\0")
    assert buffer.next_frame() == b"a"
    assert not buffer.release(), "half a length is pending"
    feed(buffer, b"\0\0\1b")
    assert buffer.next_frame() == b"b"
    assert buffer.release()
    assert buffer.capacity == 0
    feed(buffer, framed(b"c"))
    assert buffer.next_frame() == b"c"
