"""Strimzi's KafkaMirrorMaker2, as its operator makes connectors and a Connect worker of it.

Owns the resource's fields in both versions of its API: `spec.target` and `mirrors[].source` (v1), and
`spec.clusters` with `connectCluster` and aliases (v1beta2). (Strimzi: KafkaMirrorMaker2Connectors,
KafkaMirrorMaker2Configuration.) How clusters let in is `strimzi_clusters`'. Other objects of the file are
passed over, but for Secrets. A field that nobody knows is a problem, one without a meaning here is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from protocol.properties_text import Property
from protocol.yaml_text import YamlTextError, parse_yaml
from replicator.mirrormaker.connectors import (
    CHECKPOINT,
    HEARTBEAT,
    SOURCE,
    Connector,
    Worker,
    links_of_connectors,
)
from replicator.mirrormaker.file import MirrorMakerFile, file_of
from replicator.mirrormaker.kubernetes_secrets import Secrets
from replicator.mirrormaker.providers import strimzis
from replicator.mirrormaker.remarks import MirrorMakerFileError, Remark, Remarks
from replicator.mirrormaker.strimzi_clusters import Cluster
from replicator.mirrormaker.yaml_nodes import Node
from replicator.settings import LinkSettings

KIND: Final = "KafkaMirrorMaker2"

_PODS = "pods are not made here: it stays in Kubernetes' hands"
_METRICS = "metrics are Prometheus's: --metrics-port"
_SPEC_NO_MEANING: Final[Mapping[str, str]] = {
    "replicas": "start as many processes with this file as there should be",
    "metricsConfig": _METRICS,
    "jmxOptions": _METRICS,
    "jvmOptions": "there is no Java here",
    "logging": "there is no Java here: the log goes to standard error",
    "tracing": "records are not traced on their way",
    "rack": "a link reads from leaders",
    "clientRackInitImage": "a link reads from leaders",
    "externalConfiguration": "mount at the same places what settings read from files",
    **dict.fromkeys(("version", "image", "resources", "livenessProbe", "readinessProbe", "template"), _PODS),
}
_CONNECTOR_NO_MEANING: Final[Mapping[str, str]] = {
    "autoRestart": "a link goes on trying by itself",
    "version": "there are no plug-ins here",
    "listOffsets": "isthmus links status shows how far a link is",
    "alterOffsets": "a link keeps progress of its own",
}
_CONNECTORS: Final[Mapping[str, str]] = {
    "sourceConnector": SOURCE,
    "checkpointConnector": CHECKPOINT,
    "heartbeatConnector": HEARTBEAT,
}
_PATTERNS: Final[Mapping[str, str]] = {
    "topicsPattern": "topics",
    "topicsBlacklistPattern": "topics.exclude",
    "topicsExcludePattern": "topics.exclude",
    "groupsPattern": "groups",
    "groupsBlacklistPattern": "groups.exclude",
    "groupsExcludePattern": "groups.exclude",
}
"""The later one of a setting counts."""
_WORKER: Final[Mapping[str, tuple[str, str]]] = {
    "group.id": ("groupId", "mirrormaker2-cluster"),
    "offset.storage.topic": ("offsetStorageTopic", "mirrormaker2-cluster-offsets"),
    "status.storage.topic": ("statusStorageTopic", "mirrormaker2-cluster-status"),
}
"""Field of `spec.target`, and what v1beta2 takes where `config` does not say it either."""


def parse_strimzi(text: str, file: Path) -> MirrorMakerFile:
    """Raises MirrorMakerFileError with all problems."""
    said = Remarks()
    try:
        documents = parse_yaml(text)
    except YamlTextError as error:
        raise MirrorMakerFileError(str(file), [Remark(error.line, "", str(error))]) from None
    objects = [one for document in documents for one in _objects(Node(document, document, (), said))]
    secrets = Secrets(file, [one.value for one in objects if one.value.get("kind") == "Secret"])
    links: dict[str, LinkSettings] = {}
    for one in objects:
        if one.value.get("kind") != KIND:
            continue
        for link in _Resource(one, secrets, said).links():
            if link.name in links:
                said.wrong(one.property("metadata"), f"{link.name} stands in another {KIND} of the file too")
            links[link.name] = link
    return file_of(str(file), list(links.values()), said)


_API_VERSIONS = ("kafka.strimzi.io/v1", "kafka.strimzi.io/v1beta2")


def _objects(node: Node) -> Iterator[Node]:
    """What Kubernetes calls a List is one of what it holds."""
    if not isinstance(node.value, dict):
        return
    if "items" in node.value and str(node.value.get("kind", "")).endswith("List"):
        for inner in node.each("items"):
            yield from _objects(inner)
    else:
        yield node


class _Resource:
    """One KafkaMirrorMaker2: a Connect cluster."""

    def __init__(self, node: Node, secrets: Secrets, said: Remarks) -> None:
        self._said = said
        self._secrets = secrets
        told = node.needed("apiVersion") or ""
        if told and told not in _API_VERSIONS:
            known = " and ".join(_API_VERSIONS)
            said.wrong(node.property("apiVersion"), f"{told!r} is not known: {known} are")
        self._version = told.rpartition("/")[2]
        metadata = node.value.get("metadata")
        self._namespace = str(metadata.get("namespace", "")) if isinstance(metadata, dict) else ""
        node.fields(("apiVersion", "kind", "metadata", "spec", "status"), {})
        self._spec = node.inner("spec")

    def links(self) -> list[LinkSettings]:
        spec = self._spec
        if spec is None:
            return []
        spec.fields(("target", "clusters", "connectCluster", "mirrors"), _SPEC_NO_MEANING)
        clusters = {
            one.alias: one
            for node in spec.each("clusters")
            if (one := Cluster(node, self._secrets, self._namespace)).alias
        }
        target = spec.inner("target", needed=not spec.has("clusters"))
        own = (
            Cluster(target, self._secrets, self._namespace, _worker_fields()) if target is not None else None
        )
        worker = own
        if own is None and spec.has("clusters"):
            name = spec.text("connectCluster")
            worker = clusters.get(name or "")
            if worker is None:
                at = spec.property("connectCluster" if name else "clusters")
                self._said.wrong(at, "connectCluster has to name one of spec.clusters")
        if not spec.each("mirrors"):
            self._said.wrong(spec.property("mirrors"), "there are none")
        connectors = [one for mirror in spec.each("mirrors") for one in self._mirror(mirror, clusters, own)]
        if not connectors or worker is None:
            return []
        more = strimzis(self._secrets.read)
        return links_of_connectors(connectors, self._worker(worker), self._said, more)

    def _worker(self, cluster: Cluster) -> Worker:
        settings = cluster.worker_settings()
        for name, (label, otherwise) in _WORKER.items():
            if cluster.node.text(label) is not None:
                told = cluster.node.property(label)
                settings[name] = Property(name, told.text, told.line, told.place)
            elif name not in settings and self._version != "v1":
                at = cluster.node.property("")
                settings[name] = Property(name, otherwise, at.line, at.place)
        return Worker(settings, f"{KIND} of v1 has it in spec.target.")

    def _mirror(
        self, mirror: Node, clusters: Mapping[str, Cluster], target: Cluster | None
    ) -> Iterator[Connector]:
        mirror.fields(("source", "sourceCluster", "targetCluster", *_CONNECTORS, *_PATTERNS), {})
        ends = [self._end(mirror, "source", clusters), target or self._end(mirror, "target", clusters)]
        source, into = ends
        if source is None or into is None:
            return
        for label, kind in _CONNECTORS.items():
            node = mirror.inner(label, needed=False)
            if node is None:
                continue
            node.fields(("tasksMax", "config", "pause", "state"), _CONNECTOR_NO_MEANING)
            self._is_stopped(node, kind)
            config = {
                **source.as_source(),
                **into.as_target(),
                **node.settings("config"),
            }
            for pattern, name in _PATTERNS.items():
                if mirror.text(pattern) is not None:
                    item = mirror.property(pattern)
                    config[name] = Property(name, item.text, item.line, item.place)
            if node.text("tasksMax") is not None:
                item = node.property("tasksMax")
                config["tasks.max"] = Property("tasks.max", item.text, item.line, item.place)
            at = node.property("")
            yield Connector(
                kind, Property("name", f"{source.alias}->{into.alias}.{kind}", at.line, at.place), config
            )

    def _end(self, mirror: Node, side: str, clusters: Mapping[str, Cluster]) -> Cluster | None:
        if side == "source" and mirror.has("source"):
            node = mirror.inner("source")
            return Cluster(node, self._secrets, self._namespace) if node is not None else None
        name = mirror.text(f"{side}Cluster")
        if name is not None and name in clusters:
            return clusters[name]
        where = mirror.property(f"{side}Cluster")
        self._said.wrong(where, f"is no alias of spec.clusters: {', '.join(clusters) or 'there are none'}")
        return None

    def _is_stopped(self, node: Node, kind: str) -> None:
        for name in ("state", "pause"):
            text = (node.text(name) or "").lower()
            if text in ("paused", "stopped", "true"):
                self._said.note(
                    node.property(name), f"a link copies all the same: it does the {kind}'s part from now on"
                )


def _worker_fields() -> tuple[str, ...]:
    return ("configStorageTopic", *(label for label, _ in _WORKER.values()))
