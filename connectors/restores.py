"""Which restores of a backup there are, found by what they wrote beside it."""

from __future__ import annotations

from connectors import layout
from connectors.errors import BackupError
from connectors.object_store import ObjectStore
from connectors.restore_report import RestoreReport, read_state


async def latest_restore(store: ObjectStore, backup_id: str, cluster_id: str) -> RestoreReport:
    """The report of the last finished restore into the cluster. Raises BackupError when there is none."""
    prefix = layout.restore_key(backup_id, "")[: -len(".json")]
    reports = []
    broken = ""
    for info in await store.list(prefix):
        restore_id = info.key.removeprefix(prefix).removesuffix(".json")
        state = await read_state(store, backup_id, restore_id)
        if state is None or state.target_cluster_id != cluster_id:
            continue
        if state.report is not None and state.state == "done":
            reports.append(state.report)
        elif state.problem:
            broken = f"; {state.problem}"
    if not reports:
        raise BackupError(f"backup {backup_id} was never fully restored into cluster {cluster_id}{broken}")
    return max(reports, key=lambda report: report.finished_ms)
