"""How one cluster stands, in words and for machines: its ZooKeeper, its brokers, its partitions.

Pure. Owns the order in which a person is told: what everything else hangs on comes first. How partitions
stand: `partition_health`; ZooKeeper: `zookeeper_health`; asking: `cluster_look`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from topology.partition_health import PartitionHealth
from topology.sites import broker_name
from topology.zookeeper_health import ZooKeeperHealth


@dataclass(frozen=True)
class ClusterHealth:
    """`partitions` is None if no broker answers."""

    zookeeper: ZooKeeperHealth
    partitions: PartitionHealth | None
    silent: Mapping[int, str]
    """Brokers that run and do not answer, and how that showed."""
    unheard: tuple[int, ...] = ()
    """Brokers that run and answer, and that ZooKeeper does not hear from."""

    @property
    def healthy(self) -> bool:
        well = self.partitions is not None and self.partitions.healthy
        return well and self.zookeeper.healthy and not (self.silent or self.unheard)

    def as_json(self) -> dict[str, Any]:
        """Without `partitions` where no broker tells."""
        return {
            "zookeeper_serves": self.zookeeper.serves,
            "zookeeper": dict(self.zookeeper.servers),
            "brokers_silent": list(self.silent),
            "brokers_unheard": list(self.unheard),
            **({} if self.partitions is None else self.partitions.as_json()),
        }

    def sentences(self, alias: str, file: str) -> Iterator[str]:
        """`file` is the topology's YAML."""
        yield from self.zookeeper.sentences(file)
        for broker, why in self.silent.items():
            yield f"{broker_name(alias, broker)} runs and does not answer ({why})"
        if self.unheard and self.zookeeper.serves is not False:
            names = ", ".join(broker_name(alias, broker) for broker in self.unheard)
            yield (
                f"ZooKeeper has not heard from {names} for most of a session: writes are refused there until"
                " it does, then all goes on by itself"
            )
        if self.partitions is None:
            yield "no broker tells how its partitions are"
        else:
            yield from self.partitions.sentences(alias, file, known=self.zookeeper.serves is not False)
