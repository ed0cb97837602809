"""The periodic jobs of a link: what failed is tried again within seconds, however seldom the job is."""

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from protocol.errors import ProtocolError
from replicator import jobs as module
from replicator.jobs import Jobs
from replicator.metrics import LinkMetrics


@pytest.mark.parametrize(("fails", "again_s"), [(False, 600.0), (True, 5.0)])
async def test_a_job_that_failed_does_not_wait_for_its_next_turn(
    monkeypatch: pytest.MonkeyPatch, fails: bool, again_s: float
) -> None:
    waited: list[float] = []

    async def set_within(_: Any, seconds: float) -> bool:
        waited.append(seconds)
        raise asyncio.CancelledError

    async def job() -> None:
        if fails:
            raise ProtocolError("not now")

    monkeypatch.setattr(module, "set_within", set_within)
    jobs = Jobs("east->west", LinkMetrics("east->west", CollectorRegistry()))
    with pytest.raises(asyncio.CancelledError):
        await jobs.every("ACLs", lambda: 600.0, job)
    assert waited == [again_s]
    assert ("ACLs" in jobs.troubles) is fails
