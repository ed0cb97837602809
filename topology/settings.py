"""From a topology to the settings of the parts that do the work: links, backups, restores.

The YAML says what; the lower packages own their settings and check them again. Addresses come from `Runtime`.
"""

from __future__ import annotations

import time

from pydantic import SecretStr

from connectors.object_store import ObjectStoreSettings
from connectors.settings import BackupSettings, RestoreSettings
from replicator.settings import GROUPS_EXCLUDE, TOPICS_EXCLUDE, ClusterEnd, LinkSettings
from topology.models import Topology
from topology.runtime import Runtime

LOCAL_CREDENTIAL = SecretStr("isthmus-local")
"""The local S3 API accepts any credentials but wants some."""


def link_settings(topology: Topology, runtime: Runtime, name: str) -> LinkSettings:
    """Raises KeyError for an unknown link, NotRunning before the clusters have addresses."""
    source, target = topology.link_ends(name)
    link = topology.links[name]
    return LinkSettings(
        source=ClusterEnd(alias=source, bootstrap=runtime.bootstrap_servers(topology, source)),
        target=ClusterEnd(alias=target, bootstrap=runtime.bootstrap_servers(topology, target)),
        topics=link.topics,
        topics_exclude=(*TOPICS_EXCLUDE, *link.topics_exclude),
        groups=link.groups,
        groups_exclude=(*GROUPS_EXCLUDE, *link.groups_exclude),
        naming=link.naming,
        separator=link.separator,
        sync_group_offsets=link.sync_group_offsets,
        replication_factor=link.replication_factor,
    )


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
    return BackupSettings(
        backup_id=backup_id,
        bootstrap=runtime.bootstrap_servers(topology, backup.cluster),
        store=store_settings(topology, runtime, backup.store),
        topics=backup.topics,
        groups=backup.groups,
        format=backup.format,
    )


def restore_settings(
    topology: Topology, runtime: Runtime, name: str, backup_id: str, cluster: str
) -> RestoreSettings:
    backup = topology.backups[name]
    return RestoreSettings(
        backup_id=backup_id,
        bootstrap=runtime.bootstrap_servers(topology, cluster),
        store=store_settings(topology, runtime, backup.store),
    )


def new_backup_id(name: str) -> str:
    """`flights-20261128T010203Z`: sorts by time, so the last one of a name is the newest."""
    return f"{name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"


def _secret(value: str | None) -> SecretStr | None:
    return None if value is None else SecretStr(value)
