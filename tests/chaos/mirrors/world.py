"""Two clusters of brokers, and a link with identical offsets each way, of which one has something to do.

Adds to `LinkWorld` who is written to, what to, and the lock of whoever changes that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType

from protocol.client.mirror_calls import MIRROR_SOURCE
from tests.chaos.links.world import SIDES, LinkWorld

LINK: Mapping[str, object] = {
    "offsets": "identical",
    "naming": "identity",
    "refresh_topics_interval_s": 1.0,
    "sync_group_offsets_interval_s": 1.0,
}


class MirrorWorld(LinkWorld):
    def __init__(
        self, directory: Path, *, program: Sequence[str] = ("isthmus",), say: Callable[[str], None]
    ) -> None:
        super().__init__(directory, program=program, link_settings=LINK, say=say)
        self.program = program
        self.active = SIDES[0]
        """The side that clients write to, as the operator has told them."""
        self.written: dict[str, int] = {}
        """Topics that are written to, with their partitions."""
        self.roles = threading.Lock()
        """Of the operator while roles change, or of whoever changes topics."""

    @property
    def other(self) -> str:
        return next(side for side in SIDES if side != self.active)

    @property
    def link(self) -> str:
        """The one that copies, where roles are settled."""
        return f"{self.active}->{self.other}"

    def begin(self, topics: Mapping[str, int]) -> None:
        self.start(topics, [self.active])
        self.written = dict(topics)

    def mirrors(self, side: str) -> list[str] | None:
        """Topics that are written to, and mirrors at this side; None where it does not say so of all."""
        try:
            asked = self.admin(side).describe_configs(
                [ConfigResource(ResourceType.TOPIC, name) for name in self.written], request_timeout=20
            )
            configs = {resource.name: future.result(30) for resource, future in asked.items()}
        except (KafkaException, TimeoutError):
            return None
        return [name for name, found in configs.items() if (at := found.get(MIRROR_SOURCE)) and at.value]

    def cluster_id(self, side: str) -> str:
        found = self.admin(side).list_topics(timeout=30).cluster_id
        assert found
        return found
