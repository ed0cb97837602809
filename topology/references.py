"""Rules between the parts of a topology: what is named must exist, what must differ does differ.

Works on the plain document, not on the model, so that it also runs on a file whose shape has mistakes.
Yields (path, message); `load` adds the line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from protocol.counted import counted
from replicator.cycles import would_circle
from topology.models import LINK, SITE_PAIR
from topology.problems import suggestion
from topology.sites import directions

Path = tuple[str | int, ...]
Found = tuple[Path, str]


def reference_problems(document: dict[str, Any]) -> Iterator[Found]:
    for check in _CHECKS:
        yield from check(document)


def _mapping(node: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else {}


def _items(document: dict[str, Any], section: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, body in _mapping(document, section).items():
        yield str(name), body if isinstance(body, dict) else {}


def _unknown(kind: str, name: Any, known: dict[str, Any]) -> str:
    return f"there is no {kind} '{name}'{suggestion(str(name), known)}"


def _datacenters(document: dict[str, Any]) -> Iterator[Found]:
    known = _mapping(document, "datacenters")
    for section, key in (("clusters", "datacenter"), ("links", "runs_in"), ("object_stores", "datacenter")):
        for name, body in _items(document, section):
            place = body.get(key)
            if isinstance(place, str) and place not in known:
                yield (section, name, key), _unknown("datacenter", place, known)


def _links(document: dict[str, Any]) -> Iterator[Found]:
    clusters = _mapping(document, "clusters")
    for name, _ in _items(document, "links"):
        match = LINK.fullmatch(name)
        if match is None:
            continue
        for end in ("source", "target"):
            if match[end] not in clusters:
                yield ("links", name), f"{end}: {_unknown('cluster', match[end], clusters)}"
        if match["source"] == match["target"]:
            yield ("links", name), "copies a cluster into itself"


def _circles(document: dict[str, Any]) -> Iterator[Found]:
    """Links with identical names that would carry the same records round (every link of a way may stamp)."""
    identity: dict[tuple[str, str], str] = {}
    mirrors: set[tuple[str, str]] = set()
    stamped: set[tuple[str, str]] = set()
    for name, body in _items(document, "links"):
        match = LINK.fullmatch(name)
        if match is not None and body.get("naming") == "identity":
            identity[match["source"], match["target"]] = name
            if body.get("offsets") == "identical":
                mirrors.add((match["source"], match["target"]))
            elif body.get("origin_headers") is True and body.get("origin_headers_ignored") is not True:
                stamped.add((match["source"], match["target"]))
    for way in would_circle(((*ends, True) for ends in identity), mirrors):
        for step in pairwise(way) if not stamped.issuperset(pairwise(way)) else ():
            yield (
                ("links", identity[step], "naming"),
                f"identity naming on the way {' -> '.join(way)} would copy records back to where they came"
                " from: use prefix on one of these links, or origin_headers: true on all of them",
            )


def _brokers(document: dict[str, Any]) -> Iterator[Found]:
    for cluster, body in _items(document, "clusters"):
        seen: set[int] = set()
        brokers = body.get("brokers")
        for index, broker in enumerate(brokers if isinstance(brokers, list) else []):
            number = broker.get("id") if isinstance(broker, dict) else None
            if not isinstance(number, int):
                continue
            if number in seen:
                yield (
                    ("clusters", cluster, "brokers", index, "id"),
                    f"broker id {number} is used twice in {cluster}",
                )
            seen.add(number)
        count = len(seen)
        for topic, spec in _items(body, "topics"):
            factor = spec.get("replication_factor", 1)
            if isinstance(factor, int) and count and factor > count:
                yield (
                    ("clusters", cluster, "topics", topic, "replication_factor"),
                    f"is {factor}, but {cluster} has {counted(count, 'broker')}",
                )


def _sites(document: dict[str, Any]) -> Iterator[Found]:
    """Brokers and simulated links name datacenters that are there; a direction is described once."""
    known = _mapping(document, "datacenters")
    for cluster, body in _items(document, "clusters"):
        brokers = body.get("brokers")
        for index, broker in enumerate(brokers if isinstance(brokers, list) else []):
            place = broker.get("datacenter") if isinstance(broker, dict) else None
            if isinstance(place, str) and place not in known:
                yield (
                    ("clusters", cluster, "brokers", index, "datacenter"),
                    _unknown("datacenter", place, known),
                )


def _ensembles(document: dict[str, Any]) -> Iterator[Found]:
    """Servers of an ensemble are in datacenters that are there, and each has its own number."""
    known = _mapping(document, "datacenters")
    for cluster, body in _items(document, "clusters"):
        servers = _mapping(body, "zookeeper").get("servers")
        seen: set[int] = set()
        for index, server in enumerate(servers if isinstance(servers, list) else []):
            at = ("clusters", cluster, "zookeeper", "servers", index)
            if not isinstance(server, dict):
                continue
            place, number = server.get("datacenter"), server.get("id")
            if isinstance(place, str) and place not in known:
                yield (*at, "datacenter"), _unknown("datacenter", place, known)
            if isinstance(number, int):
                if number in seen:
                    yield (*at, "id"), f"ZooKeeper server {number} is there twice in {cluster}"
                seen.add(number)


def _network(document: dict[str, Any]) -> Iterator[Found]:
    known = _mapping(document, "datacenters")
    names = [str(name).upper() for name in known]
    for name in known if document.get("network") is not None else ():
        if names.count(str(name).upper()) > 1:
            yield ("datacenters", name), "differs from another only in case, which names of listeners do not"
    described: dict[tuple[str, str], str] = {}
    for name in map(str, _mapping(document, "network", "links")):
        match = SITE_PAIR.fullmatch(name)
        if match is None:
            continue
        at = ("network", "links", name)
        for end in ("source", "target"):
            if match[end] not in known:
                yield at, _unknown("datacenter", match[end], known)
        if match["source"] == match["target"]:
            yield at, "leads from a datacenter to itself"
        for pair in set(directions(name)):
            if pair in described:
                yield at, f"describes {pair[0]}->{pair[1]}, as {described[pair]} does"
            described.setdefault(pair, name)


def _ports(document: dict[str, Any]) -> Iterator[Found]:
    used: dict[int, str] = {}
    for path, port in _declared_ports(document, ()):
        if not isinstance(port, int) or port == 0:
            continue
        where = ".".join(str(part) for part in path)
        if port in used:
            yield path, f"port {port} is already taken by {used[port]}"
        used.setdefault(port, where)


def _declared_ports(node: Any, at: Path) -> Iterator[tuple[Path, Any]]:
    children: Iterator[tuple[Any, Any]] = iter(())
    if isinstance(node, dict):
        children = iter(node.items())
    elif isinstance(node, list):
        children = iter(enumerate(node))
    for key, value in children:
        if key in ("port", "metrics_port"):
            yield (*at, key), value
        else:
            yield from _declared_ports(value, (*at, key))


def _backups(document: dict[str, Any]) -> Iterator[Found]:
    clusters, stores = _mapping(document, "clusters"), _mapping(document, "object_stores")
    for name, body in _items(document, "backups"):
        for key, kind, known in (("cluster", "cluster", clusters), ("store", "object store", stores)):
            named = body.get(key)
            if isinstance(named, str) and named not in known:
                yield ("backups", name, key), _unknown(kind, named, known)


def _topic_collisions(document: dict[str, Any]) -> Iterator[Found]:
    """`a.b` and `a_b` get the same metric name: Kafka refuses the second one."""
    for cluster, body in _items(document, "clusters"):
        by_metric: dict[str, list[str]] = {}
        for topic, _ in _items(body, "topics"):
            by_metric.setdefault(topic.replace(".", "_"), []).append(topic)
        for topics in by_metric.values():
            for topic in topics if len(topics) > 1 else ():
                others = "', '".join(other for other in topics if other != topic)
                yield ("clusters", cluster, "topics", topic), f"collides with '{others}' in metric names"


_CHECKS: tuple[Callable[[dict[str, Any]], Iterator[Found]], ...] = (
    _datacenters,
    _links,
    _circles,
    _brokers,
    _sites,
    _ensembles,
    _network,
    _ports,
    _backups,
    _topic_collisions,
)
