"""The lease of a link: of all claims in a log exactly one counts, and everybody agrees which."""

import asyncio
import os
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.lease import Lease, LeaseHeld, LeaseLost, LeaseView, process_start, this_machine
from replicator.lease_keeper import LeaseKeeper
from replicator.progress import Progress


class Log:
    """Stands for the progress topic: one log, read by each store from where it has come to."""

    def __init__(self) -> None:
        self.rows: list[tuple[bytes, bytes]] = []


class Store:
    def __init__(self, log: Log) -> None:
        self.log, self.progress, self.position = log, Progress(), 0

    async def refresh(self) -> Progress:
        self.progress.apply(self.log.rows[self.position :])
        self.position = len(self.log.rows)
        return self.progress

    async def save_lease(self, lease: Lease, *, released: bool = False) -> None:
        self.log.rows.append((b"lease", replace(lease, released=released).encode()))


def foreign(term: int = 1, **fields: object) -> bytes:
    return replace(Lease(term, "them", 77, "elsewhere"), **fields).encode()  # type: ignore[arg-type]


def keeper(log: Log) -> LeaseKeeper:
    return LeaseKeeper("a->b", Store(log), ttl_s=0.6, renew_s=0.05)  # type: ignore[arg-type]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["claim", "renew", "release", "stale"])), max_size=40
    )
)
def test_everybody_who_reads_the_log_sees_the_same_owner(steps: list[tuple[int, str]]) -> None:
    """Four processes read the log up to different places, and act on what they have read."""
    log: list[bytes] = []
    views = [LeaseView() for _ in range(4)]
    read = [0] * 4
    mine: list[Lease | None] = [None] * 4
    for who, step in steps:
        view = views[who]
        if step != "stale":  # else it acts on what it knew before
            for value in log[read[who] :]:
                view.apply(value)
            read[who] = len(log)
        held = mine[who]
        if step in ("claim", "stale"):
            mine[who] = view.claim()
            log.append(mine[who].encode())  # type: ignore[union-attr]
        elif held is not None:
            log.append(replace(held, released=step == "release").encode())
    late = LeaseView()
    for value in log:
        late.apply(value)
    for view, start in zip(views, read, strict=True):
        for value in log[start:]:
            view.apply(value)
        assert (view.term, view.holder) == (late.term, late.holder)


def test_the_first_claim_of_a_term_counts_and_a_fenced_owner_cannot_renew() -> None:
    view = LeaseView()
    first, second = Lease(1, "one"), Lease(1, "two")
    for lease in (first, second, replace(second, released=True)):
        view.apply(lease.encode())
    assert view.holder == first
    view.apply(Lease(2, "two").encode())
    view.apply(first.encode())
    assert view.holder == Lease(2, "two")
    view.apply(Lease(2, "two", released=True).encode())
    assert (view.holder, view.claim().term) == (None, 3)


@pytest.mark.parametrize(
    "value", [b"", b"{}", b"[]", b'{"term":"x","owner":"y"}', b'{"term":1,"owner":"o","x":1}']
)
def test_a_lease_that_cannot_be_read_counts_for_nothing(value: bytes) -> None:
    view = LeaseView()
    view.apply(value)
    assert (view.holder, view.heard) == (None, 1)


async def test_an_owner_that_renews_is_never_replaced() -> None:
    log = Log()
    first, second = keeper(log), keeper(log)
    await first.acquire()
    renewing = asyncio.create_task(first.keep())
    try:
        with pytest.raises(LeaseHeld, match=f"process {os.getpid()} on .* stop that one first.*--name"):
            await second.acquire()
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
    await first.release()
    await second.acquire()


async def test_a_silent_owner_is_replaced_and_learns_it() -> None:
    log = Log()
    first, second = keeper(log), keeper(log)
    await first.acquire()
    await second.acquire()
    with pytest.raises(LeaseLost, match="taken over by process"):
        await first.keep()
    await first.release()  # nothing of it is left to give up
    assert len(log.rows) == 2


async def test_a_dead_process_of_this_machine_is_replaced_at_once() -> None:
    child = await asyncio.to_thread(subprocess.Popen, ["sleep", "60"])
    started = process_start(child.pid)
    try:
        alive = LeaseView()
        alive.apply(foreign(pid=child.pid, machine=this_machine(), started=started))
        assert not alive.free
    finally:
        child.kill()
        child.wait()
    assert alive.free
    alive.apply(foreign(2, pid=os.getpid(), machine=this_machine(), started="1"))
    assert alive.free  # the number was given to another process
    alive.apply(foreign(3, pid=os.getpid(), machine="another", started="1"))
    assert not alive.free
