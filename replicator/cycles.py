"""The cycle rule: a record never comes back to the cluster where it was produced (DESIGN §4, I6).

Owns the decision for one topic, pure. With prefix naming a name carries the aliases of all clusters it went
through; a topic that went through the target is not copied there. With identical names there is nothing to
see in a name, so two such links between the same clusters must not share topics: `would_circle` tells
before they start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise

from replicator.naming import Naming


def is_cycle(topic: str, naming: Naming) -> bool:
    """Whether the name of a source topic says that it has been at the target."""
    return naming.target in naming.hops(topic)


def would_circle(
    links: Iterable[tuple[str, str, bool]], mirrors: Collection[tuple[str, str]] = ()
) -> list[tuple[str, ...]]:
    """Circles among links (source, target, identity) that names cannot break: each as the aliases on its way.

    One prefix link inside a circle breaks it, because its target's name stays in the topic's name. `mirrors`
    (source, target) are those of the links that keep offsets: of them alone none is a circle, since a mirror
    of a topic of the target is never mirrored back; another link copies it like any topic.
    """
    edges: dict[str, list[str]] = {}
    for source, target, identity in links:
        if identity:
            edges.setdefault(source, []).append(target)
    circles: dict[frozenset[str], tuple[str, ...]] = {}
    for start in edges:
        _walk(edges, (start,), circles)
    return [way for way in circles.values() if not {*pairwise(way)} <= {*mirrors}]


def _walk(
    edges: dict[str, list[str]], way: tuple[str, ...], circles: dict[frozenset[str], tuple[str, ...]]
) -> None:
    for following in edges.get(way[-1], ()):
        if following == way[0]:
            circles.setdefault(frozenset(way), (*way, following))
        elif following not in way:
            _walk(edges, (*way, following), circles)
