"""Memory of large frames: used again when nobody has a view of it, never before."""

import asyncio
import ctypes
import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.client import frame_memory
from protocol.client.frame_memory import LARGE, MOST_BYTES, SLAB, SPARE_BYTES, FrameMemory


def address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


async def test_frames_lie_behind_one_another() -> None:
    memory = FrameMemory()
    first, second = memory.take(1 << 20), memory.take(LARGE)
    assert first.obj is second.obj
    assert address(second) - address(first) == 1 << 20
    assert memory.held == SLAB


async def test_memory_is_used_again_once_no_view_of_the_slab_is_left() -> None:
    memory = FrameMemory()
    first = memory.take(4 << 20)
    part, where = first[10:20], id(first.obj)
    del first
    second = memory.take(4 << 20)
    assert id(second.obj) != where, "a part of it is still looked at"
    del part
    third = memory.take(3 << 20)
    assert (id(third.obj), len(third)) == (where, 3 << 20)


async def test_a_frame_larger_than_a_slab_is_used_again_too() -> None:
    memory = FrameMemory()
    where = id(memory.take(16 << 20).obj)
    memory.take(2 << 20)
    memory.take(16 << 20)
    assert id(memory.take(15 << 20).obj) == where
    assert memory.held <= (16 << 20) + SPARE_BYTES + SLAB


async def test_frames_that_nobody_lets_go_do_not_hold_slabs_without_end() -> None:
    """A partition whose target is away holds its frames for hours, while others go on."""
    memory = FrameMemory()
    kept = []
    for _ in range(200):
        kept.append(memory.take(LARGE))
        memory.take(4 << 20)
    assert memory.held <= MOST_BYTES
    assert len({id(frame.obj) for frame in kept}) > MOST_BYTES // SLAB
    assert len(kept[-1].obj) == LARGE, "it has memory of just its size then"


async def test_few_free_slabs_are_left() -> None:
    memory = FrameMemory()
    views = [memory.take(4 << 20) for _ in range(9)]
    assert memory.held == 9 * SLAB
    views.clear()
    memory.take(4 << 20)
    assert memory.held <= SPARE_BYTES + SLAB


async def test_nothing_is_kept_when_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_memory, "IDLE_S", 0.05)
    memory = FrameMemory()
    held = memory.take(LARGE)
    held[:4] = b"kept"
    for _ in range(100):
        await asyncio.sleep(0.02)
        if not memory.held:
            break
    assert not memory.held
    assert bytes(held[:4]) == b"kept", "who has a view keeps it"
    memory.take(LARGE)
    assert memory.held, "and it begins again"


@given(steps=st.lists(st.tuples(st.integers(LARGE - 2, 3 * LARGE), st.integers(0, 6)), max_size=40))
def test_what_is_looked_at_is_never_written_over(steps: list[tuple[int, int]]) -> None:
    async def play() -> None:
        memory = FrameMemory()
        held: list[tuple[memoryview, bytes]] = []
        for number, (size, dropped) in enumerate(steps):
            del held[:dropped]
            frame = memory.take(size)
            assert len(frame) == size
            mark = number.to_bytes(1, "big")
            frame[:] = mark * size
            held.append((frame[size // 2 :], mark * (size - size // 2)))
            for view, expected in held:
                assert view == expected
        memory._look()
        memory._look()

    asyncio.run(play())
    gc.collect()
