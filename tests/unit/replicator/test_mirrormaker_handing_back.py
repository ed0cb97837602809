"""Handing a link back to MirrorMaker 2: what is refused before anything of a cluster is changed."""

from typing import cast

import pytest

from protocol.client import ClusterClient
from replicator.mirrormaker.handing_back import NotHandedBackError, hand_back
from replicator.progress import Progress, ProgressStore
from replicator.settings import ClusterEnd, LinkSettings, TakeOver
from replicator.troubles import now_ms
from replicator.workers.report import STALE_S, WorkerReport


@pytest.mark.parametrize(("session_s", "longest_s"), [(8.0, STALE_S), (60.0, 60.0)])
async def test_a_killed_worker_counts_for_as_long_as_is_said(
    monkeypatch: pytest.MonkeyPatch, session_s: float, longest_s: float
) -> None:
    """Its record counts beside its membership: who tried again after the session was refused once more."""
    settings = LinkSettings(
        source=ClusterEnd(alias="east", bootstrap="a:1"),
        target=ClusterEnd(alias="west", bootstrap="b:1"),
        take_over=TakeOver.of("east"),
        worker_session_timeout_s=session_s,
    )
    killed = WorkerReport("host:1", "1", at_ms=now_ms() - int(STALE_S * 1000) + 2000)
    progress = Progress()
    progress.apply([(killed.key.encode(), killed.encode())])
    monkeypatch.setattr(Progress, "partitions", lambda _: ["orders-0"])

    async def refresh(_: ProgressStore) -> Progress:
        return progress

    monkeypatch.setattr(ProgressStore, "refresh", refresh)
    nobody = cast(ClusterClient, None)
    with pytest.raises(NotHandedBackError, match="host:1; stop all its workers first") as refused:
        await hand_back(nobody, nobody, settings, dry_run=True)
    assert f"for up to {longest_s:g} s" in str(refused.value)
