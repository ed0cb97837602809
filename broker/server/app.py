"""The assembled broker: every part that handlers reach through `context.broker`, and what runs beside them.

Owns construction order, the listeners and the periodic tasks; knows nothing of command lines or processes
(`broker.process` does). Parts are built by whoever starts the broker and passed in, so that tests can run a
broker without ZooKeeper.
"""

from __future__ import annotations

from typing import Any

from broker.server.registry import Registry


class Broker:
    """What handlers may use. All attributes are set before the first connection is accepted."""

    def __init__(
        self,
        *,
        config: Any,
        clock: Any,
        logs: Any,
        replicas: Any,
        metadata: Any,
        topics: Any,
        groups: Any,
        producer_ids: Any,
        metrics: Any,
        registry: Registry | None = None,
    ) -> None:
        self.config = config
        self.clock = clock
        self.logs = logs
        self.replicas = replicas
        self.metadata = metadata
        self.topics = topics
        self.groups = groups
        self.producer_ids = producer_ids
        self.metrics = metrics
        self.registry = registry if registry is not None else Registry.discover()
