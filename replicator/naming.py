"""How topics are called at the target, and what a name says about where a topic came from.

Owns names only, pure. `prefix` is MM2's DefaultReplicationPolicy: alias, separator, topic. `identity` keeps
names (IdentityReplicationPolicy); only heartbeats are prefixed, where they are copied, so that they stay
apart. Names of internal topics are MM2's (KIP-382, KIP-690), so that Java's MirrorClient finds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from replicator.renaming import Rename

HEARTBEATS = "heartbeats"


@dataclass(frozen=True, slots=True)
class Naming:
    """Names for the link from `source` to `target`."""

    source: str
    target: str
    separator: str = "."
    identity: bool = False
    internal_separator: bool = True
    """Internal topics carry the separator too; else a dot (KIP-949)."""
    rename: tuple[Rename, ...] = ()
    heartbeats: bool = True
    """They are copied: each cluster has a topic of that name of its own."""

    def at_target(self, topic: str) -> str:
        """The name of a source topic at the target."""
        if self.identity and not (self.heartbeats and self.original(topic) == HEARTBEATS):
            return next((new for rule in self.rename if (new := rule.apply(topic)) is not None), topic)
        return f"{self.source}{self.separator}{topic}"

    def original(self, topic: str) -> str:
        """The name without the aliases of the clusters that it went through, by its look."""
        for alias in self.hops(topic):
            topic = topic[len(alias) + len(self.separator) :]
        return topic

    def is_internal(self, topic: str) -> bool:
        """Topics that no link copies, whatever its filter says (MM2's rule); also with its own separator."""
        return is_internal(topic) or topic.endswith(f"{self._inner}internal")

    @property
    def _inner(self) -> str:
        return self.separator if self.internal_separator else "."

    def hops(self, topic: str) -> Iterator[str]:
        """Aliases in the name, nearest first. A local `orders.eu` has the hop `orders` (MM2's rule)."""
        while True:
            alias, separator, rest = topic.partition(self.separator)
            if not separator or not rest:
                return
            yield alias
            topic = rest

    @property
    def checkpoints(self) -> str:
        """On the target."""
        return f"{self.source}{self._inner}checkpoints{self._inner}internal"

    def offset_syncs(self, *, at_source: bool) -> str:
        """Named after the other side, wherever it is (KIP-716)."""
        other = self.target if at_source else self.source
        return f"mm2-offset-syncs{self._inner}{other}{self._inner}internal"


def is_internal(topic: str) -> bool:
    """Topics that no link copies, whatever its filter says (MM2's rule)."""
    return topic.startswith(("__", ".")) or topic.endswith(("-internal", ".internal"))
