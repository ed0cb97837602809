"""Two clusters of brokers, and a link with identical offsets each way, of which one has something to do.

Adds to `LinkWorld` who is written to, what to, and the lock of whoever changes that. Where one side is Apache
Kafka, only the link from there is run, and the way back is of another kind (`way_back`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, ResourceType

from protocol.client.mirror_calls import MIRROR_SOURCE
from tests.chaos.links.world import SIDES, LinkWorld, answered
from tests.chaos.mirrors.topics import BROKERS, KEEPS

LINK: Mapping[str, object] = {
    "offsets": "identical",
    "naming": "identity",
    "refresh_topics_interval_s": 1.0,
    "sync_group_offsets_interval_s": 1.0,
}


class MirrorWorld(LinkWorld):
    def __init__(
        self,
        directory: Path,
        *,
        program: Sequence[str] = ("isthmus",),
        apache: str | None = None,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(
            directory,
            program=program,
            link_settings=LINK,
            apache=apache,
            broker_settings=BROKERS,
            say=say,
        )
        self.program = program
        self.apache = apache
        self.topic_settings = {name: keeps.settings for name, keeps in KEEPS.items()}
        self.active = SIDES[0]
        """The side that clients write to, as the operator has told them."""
        self.written: dict[str, int] = {}
        """Topics that are written to, with their partitions."""
        self.resting = False
        """Nobody is to write anywhere."""
        self.is_quiet: Callable[[], bool] = lambda: True
        """Whether nobody does."""
        self.sent: Callable[[], int] = lambda: 0
        """How many values clients have sent so far."""
        self.deleted: set[str] = set()
        self.remade: Counter[tuple[str, str]] = Counter()
        """Topics."""
        self.trimmed: dict[tuple[str, int], int] = {}
        """Partitions whose records were deleted by request: how many had been sent in all then."""
        self.roles = threading.Lock()
        """Of the operator while roles change, or of whoever changes topics."""
        self._lives = dict.fromkeys(SIDES, 1)
        self._away: set[str] = set()

    @property
    def other(self) -> str:
        return next(side for side in SIDES if side != self.active)

    @property
    def link(self) -> str:
        """The one that copies, where roles are settled."""
        return f"{self.active}->{self.other}"

    def begin(self, topics: Mapping[str, int]) -> None:
        if self.apache is not None:
            back = f"{self.other}->{self.apache}"
            for name in self.workers_of(back):
                del self.workers[name]
        self.start(topics, [self.active])
        self.written = dict(topics)

    # -- lives of sides

    def life(self, side: str) -> str:
        """Empty while its topics are deleted and made again."""
        number = self._lives[side]
        return "" if side in self._away else side if number == 1 else f"{side}#{number}"

    def ends_life(self, side: str) -> None:
        self._away.add(side)

    def begins_life(self, side: str) -> None:
        self._lives[side] += 1
        self._away.discard(side)

    def lives_before(self) -> set[str]:
        return {
            side if number == 1 else f"{side}#{number}"
            for side, last in self._lives.items()
            for number in range(1, last)
        }

    # -- what is where

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

    def delete_topics(self, side: str, names: Sequence[str]) -> None:
        """Those that are there; returns when none is. Raises KafkaException."""
        there = [name for name in names if name in self.partitions(side)]
        for future in self.admin(side).delete_topics(there).values() if there else ():
            answered(future)

    def topic_id(self, side: str, name: str) -> str | None:
        """None: it is not there, or nobody answers."""
        try:
            found = self.admin(side).describe_topics(TopicCollection([name]))[name].result(30)
        except KafkaException:
            return None
        return str(found.topic_id)

    def cluster_id(self, side: str) -> str:
        found = self.admin(side).list_topics(timeout=30).cluster_id
        assert found
        return found
