"""From a topology to the settings of the parts that do the work: links, backups, restores, audits.

The YAML says what; the lower packages own their settings and check them again. Addresses come from `Runtime`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from pydantic import SecretStr

from audit.settings import (
    Alignment,
    AuditSettings,
    BackupSide,
    ByContent,
    ClusterSide,
    LinkLedger,
    RestoreLedger,
    TopicPair,
)
from connectors.object_store import ObjectStoreSettings, open_store
from connectors.restores import latest_restore
from connectors.settings import BackupSettings, RestoreSettings
from replicator.origin import ORIGIN_HEADER
from replicator.settings import ClusterEnd, LinkSettings
from topology.links import link_between
from topology.models import Topology
from topology.runtime import Runtime

LOCAL_CREDENTIAL = SecretStr("isthmus-local")
"""The local S3 API accepts any credentials but wants some."""


def link_settings(topology: Topology, runtime: Runtime, name: str) -> LinkSettings:
    """Raises KeyError for an unknown link, NotRunning before the clusters have addresses."""
    source, target = topology.link_ends(name)
    site = topology.link_datacenter(name)
    ends = [
        ClusterEnd(alias=alias, bootstrap=access.bootstrap, properties=access.properties)
        for alias in (source, target)
        for access in [runtime.access(topology, alias, site)]
    ]
    return link_between(ends[0], ends[1], topology.links[name])


def store_settings(topology: Topology, runtime: Runtime, name: str) -> ObjectStoreSettings:
    store = topology.object_stores[name]
    local = store.kind == "local"
    return ObjectStoreSettings(
        bucket=store.bucket,
        prefix=store.prefix,
        endpoint=runtime.store_endpoint(topology, name),
        region=store.region,
        access_key=LOCAL_CREDENTIAL if local else _secret(store.access_key),
        secret_key=LOCAL_CREDENTIAL if local else _secret(store.secret_key),
        create_bucket=local,
    )


def backup_settings(topology: Topology, runtime: Runtime, name: str, backup_id: str) -> BackupSettings:
    backup = topology.backups[name]
    access = runtime.access(topology, backup.cluster)
    return BackupSettings(
        backup_id=backup_id,
        bootstrap=access.bootstrap,
        properties=access.properties,
        cluster=access.name,
        store=store_settings(topology, runtime, backup.store),
        topics=backup.topics,
        groups=backup.groups,
        format=backup.format,
    )


def restore_settings(
    topology: Topology,
    runtime: Runtime,
    name: str,
    backup_id: str,
    cluster: str,
    *,
    topics: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    prefix: str = "",
) -> RestoreSettings:
    """Raises ValidationError (a ValueError) for a name that is none."""
    backup = topology.backups[name]
    access = runtime.access(topology, cluster)
    return RestoreSettings(
        backup_id=backup_id,
        bootstrap=access.bootstrap,
        properties=access.properties,
        cluster=access.name,
        store=store_settings(topology, runtime, backup.store),
        topics=tuple(topics),
        rename=dict(rename or {}),
        prefix=prefix,
    )


def link_audit_settings(
    topology: Topology,
    runtime: Runtime,
    link: str,
    topics: list[str],
    *,
    by_content: bool,
    mirrors: Mapping[str, str] | None = None,
) -> AuditSettings:
    """The link's source against its target, for topics as the source calls them. `mirrors`: those that are
    not called as the link's naming says."""
    settings = link_settings(topology, runtime, link)
    naming = settings.names()
    alignment: Alignment = ByContent()
    if not by_content:
        alignment = LinkLedger(
            source_alias=settings.source.alias,
            target_alias=settings.target.alias,
            bootstrap=settings.target.bootstrap,
            properties=settings.target.properties,
            identical=settings.offsets == "identical",
            origins="none"
            if not settings.origin_headers
            else "all"
            if settings.origin_headers_ignored
            else "others",
        )
    return AuditSettings(
        source=_side(settings.source),
        target=_side(settings.target),
        topics=tuple(
            TopicPair(source=topic, target=(mirrors or {}).get(topic) or naming.at_target(topic))
            for topic in topics
        ),
        alignment=alignment,
        ignore_headers=(ORIGIN_HEADER,) if settings.origin_headers else (),
    )


def _side(end: ClusterEnd) -> ClusterSide:
    return ClusterSide(bootstrap=end.bootstrap, properties=end.properties, name=end.alias)


async def restore_audit_settings(
    topology: Topology,
    runtime: Runtime,
    store: ObjectStoreSettings,
    backup_id: str,
    cluster: str,
    topics: list[str],
) -> AuditSettings:
    """A backup against what its last restore into `cluster` made of it. Raises BackupError without one."""
    access = runtime.access(topology, cluster)
    async with access.client("isthmus-audit") as client, open_store(store) as opened:
        report = await latest_restore(opened, backup_id, client.cluster_id or "")
    names = {topic.source: topic.target for topic in report.topics}
    return AuditSettings(
        source=BackupSide(store=store, backup_id=backup_id),
        target=ClusterSide(bootstrap=access.bootstrap, properties=access.properties, name=cluster),
        topics=tuple(TopicPair(source=topic, target=names.get(topic, topic)) for topic in topics),
        alignment=RestoreLedger(store=store, backup_id=backup_id, restore_id=report.restore_id),
    )


def new_backup_id(name: str) -> str:
    """`flights-20261128T010203Z`: sorts by time, so the last one of a name is the newest."""
    return f"{name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"


def _secret(value: str | None) -> SecretStr | None:
    return None if value is None else SecretStr(value)
