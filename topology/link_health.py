"""How the links of a running topology stand, as their own metrics say: which of their clusters answer.

For its supervisor a link's process is "ready" as soon as it runs, and it keeps running while a cluster is
down: that says nothing about copying. Owns what one gauge of `replicator.metrics` means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from topology.scrape import samples


async def link_problems(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """By process name, what keeps a link that is ready from copying; `rows` are the supervisor's."""
    links = [row for row in rows if row["kind"] == "link" and row["state"] == "ready"]
    found = await asyncio.gather(*(asyncio.to_thread(_problem, row["metrics_port"]) for row in links))
    return {row["name"]: problem for row, problem in zip(links, found, strict=True) if problem}


def _problem(port: int) -> str:
    try:
        found = samples(port, "isthmus_link_cluster_up")
    except (OSError, ValueError) as error:
        return f"its metrics cannot be read: {error}"
    silent = [sample.labels["cluster"] for sample in found if not sample.value]
    return f"{' and '.join(silent)} cannot be reached" if silent else ""
