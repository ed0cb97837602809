"""Memory of large frames: used again when nobody has a view of it, never before."""

import asyncio
import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.client import frame_memory
from protocol.client.frame_memory import LARGE, SPARE_BYTES, FrameMemory


def place(view: memoryview) -> int:
    return id(view.obj)


async def test_memory_is_used_again_once_no_view_is_left() -> None:
    memory = FrameMemory()
    first = memory.take(1 << 20)
    part = first[10:20]
    where = place(first)
    del first
    second = memory.take(1 << 20)
    assert place(second) != where, "a part of it is still looked at"
    del part
    third = memory.take((1 << 20) - 17)
    assert (place(third), len(third)) == (where, (1 << 20) - 17), "one that nearly fits will do"


async def test_a_large_buffer_does_not_hold_a_small_frame() -> None:
    """What is on its way is counted by frames: each may hold at most twice its size."""
    memory = FrameMemory()
    where = place(memory.take(4 << 20))
    assert place(memory.take(1 << 20)) != where


async def test_few_are_left_that_do_not_fit() -> None:
    memory = FrameMemory()
    views = [memory.take(LARGE) for _ in range(100)]
    views += [memory.take(6 << 20) for _ in range(5)]
    views.clear()
    views = [memory.take(16 << 20) for _ in range(10)]  # each looks at some
    assert sum(map(len, memory._free)) <= SPARE_BYTES
    assert len(memory._given) == len(views)


async def test_nothing_is_kept_when_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_memory, "IDLE_S", 0.05)
    memory = FrameMemory()
    held = memory.take(LARGE)
    held[:4] = b"kept"
    for _ in range(100):
        await asyncio.sleep(0.02)
        if not memory._given:
            break
    assert not memory._given
    assert bytes(held[:4]) == b"kept", "who has a view keeps it"
    memory.take(LARGE)
    assert memory._given, "and it begins again"


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
