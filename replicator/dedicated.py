"""Several links in one process (MirrorMaker 2's dedicated mode): each runs by itself, one exit code for all.

Owns starting them, the joint metrics and the worst exit code. A link that fails leaves the others running
(I10); the process ends when it is stopped or when no link is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from protocol.counted import counted
from replicator.connected import EXIT_DIFFERENCES, EXIT_FAILED, EXIT_OK, LinkStatus
from replicator.cycles import would_circle
from replicator.mirrors.running import run_mirrors
from replicator.settings import LinkSettings
from replicator.worker import run_link

_log = logging.getLogger("isthmus.replicator")

_WORST_FIRST = (EXIT_FAILED, EXIT_DIFFERENCES, EXIT_OK)


class JointMetrics(Collector):
    """Series of several registries as one: families of the same name are put together."""

    def __init__(self, registries: Iterable[CollectorRegistry]) -> None:
        self._registries = list(registries)

    def leave(self, registry: CollectorRegistry) -> None:
        """Its link has ended: gauges would tell for ever how it stood."""
        self._registries.remove(registry)

    def collect(self) -> Iterator[Metric]:
        """All families, each once."""
        families: dict[str, Metric] = {}
        for registry in tuple(self._registries):
            for family in registry.collect():
                known = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                known.samples.extend(family.samples)
        yield from families.values()


async def run_links(
    links: Sequence[LinkSettings],
    stop: asyncio.Event,
    registry: CollectorRegistry,
    statuses: Mapping[str, LinkStatus] | None = None,
    rest: str = "",
) -> int:
    """Runs all until `stop`; the worst exit code: failed, then differences, then fine. `rest` is where this
    process answers requests about its links, for other workers to know."""
    registries = {link.name: CollectorRegistry() for link in links}
    joint = JointMetrics(registries.values())
    registry.register(joint)
    left = {link.name for link in links}
    codes = await asyncio.gather(
        *(
            _run(link, stop, registries[link.name], (statuses or {}).get(link.name), left, rest, joint)
            for link in links
        )
    )
    return next(code for code in _WORST_FIRST if code in codes or code == EXIT_OK)


async def _run(
    link: LinkSettings,
    stop: asyncio.Event,
    registry: CollectorRegistry,
    status: LinkStatus | None,
    left: set[str],
    rest: str,
    joint: JointMetrics,
) -> int:
    try:
        if link.offsets == "identical":
            code = await run_mirrors(link, stop, registry, status, rest)
        else:
            code = await run_link(link, stop, registry, status, rest)
    except Exception:  # noqa: BLE001 (whatever it is, the other links go on)
        _log.exception("link %s ended by a fault that nobody foresaw", link.name)
        code = EXIT_FAILED
    left.discard(link.name)
    if not stop.is_set():
        joint.leave(registry)
        if status is not None:
            status.ended(code)
    if code == EXIT_FAILED and not stop.is_set():
        others = f"{', '.join(sorted(left))} go on" if left else "no link is left"
        _log.error("link %s has ended; %s", link.name, others)
    if code != EXIT_FAILED:  # who fails says why where it does
        then = "; gaps or other differences are on record (isthmus links status)" if code else ""
        copied = counted(_copied(registry), "record")
        _log.info("link %s has stopped: it copied %s since it was started%s", link.name, copied, then)
    return code


def _copied(registry: CollectorRegistry) -> int:
    """Records that the target has acknowledged to this process."""
    return sum(
        int(sample.value)
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "isthmus_link_records_total"
    )


def circles(links: Sequence[LinkSettings]) -> list[str]:
    """What would go round for ever, in words; empty when nothing does."""
    stamped = {
        (link.source.alias, link.target.alias)
        for link in links
        if link.origin_headers and not link.origin_headers_ignored and link.offsets != "identical"
    }
    mirrors = {(link.source.alias, link.target.alias) for link in links if link.offsets == "identical"}
    found = would_circle(
        ((link.source.alias, link.target.alias, link.naming == "identity") for link in links), mirrors
    )
    return [
        f"{' -> '.join(way)}: the same records would go round for ever, since names do not change there;"
        " use prefix naming (DefaultReplicationPolicy) on one of these links, or let all of them write where"
        " a record has been (topology: origin_headers: true, properties: origin.headers.enabled = true)"
        for way in found
        if not stamped.issuperset(pairwise(way))
    ]
