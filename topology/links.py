"""A link of the YAML as its link is told, and what is wrong with it that single values do not show.

Owns which setting of the model is which of `LinkSettings`; that one knows what does not go together. Must not
need addresses: a file is checked before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from replicator.settings import (
    CONFIG_PROPERTIES_EXCLUDE,
    GROUPS_EXCLUDE,
    TOPICS_EXCLUDE,
    ClusterEnd,
    LinkSettings,
    TakeOver,
)
from topology.models import Link, Topology

_ANYWHERE = "localhost:9092"


def link_between(source: ClusterEnd, target: ClusterEnd, link: Link) -> LinkSettings:
    """Raises ValidationError for settings that do not go together."""
    return LinkSettings(
        source=source,
        target=target,
        topics=link.topics,
        topics_exclude=(*TOPICS_EXCLUDE, *link.topics_exclude),
        groups=link.groups,
        groups_exclude=(*GROUPS_EXCLUDE, *link.groups_exclude),
        offsets=link.offsets,
        on_truncation=link.on_truncation,
        naming=link.naming,
        separator=link.separator,
        origin_headers=link.origin_headers,
        origin_headers_ignored=link.origin_headers_ignored,
        start=link.start,
        sync_group_offsets=link.sync_group_offsets,
        groups_on_rewind=link.groups_on_rewind,
        groups_on_delete=link.groups_on_delete,
        sync_topic_acls=link.sync_topic_acls,
        acls_report_only=link.acls_report_only,
        acls_revoke_at_most=link.acls_revoke_at_most,
        config_properties_exclude=(*CONFIG_PROPERTIES_EXCLUDE, *link.config_properties_exclude),
        use_defaults_from=link.use_defaults_from,
        on_gap=link.on_gap,
        on_recreated=link.on_recreated,
        on_refused=link.on_refused,
        exactly_once=link.exactly_once,
        replication_factor=link.replication_factor,
        rate_limit=link.rate_limit,
        refresh_topics_interval_s=link.refresh_topics_interval_s,
        emit_checkpoints=link.emit_checkpoints,
        emit_offset_syncs=link.emit_offset_syncs,
        emit_heartbeats=link.emit_heartbeats,
        heartbeats_replication=link.heartbeats_replication,
        offset_syncs_topic_location=link.offset_syncs_topic_location,
        take_over=TakeOver.of(source.alias) if link.take_over_mirrormaker else None,
    )


def link_problems(topology: Topology) -> Iterator[tuple[tuple[str, ...], str]]:
    """Where in the file, and what."""
    for name, link in topology.links.items():
        source, target = (ClusterEnd(alias=alias, bootstrap=_ANYWHERE) for alias in topology.link_ends(name))
        try:
            link_between(source, target, link)
        except ValidationError as error:
            for found in error.errors(include_url=False):
                at = ("links", name, *(str(part) for part in found["loc"][:1]))
                yield at, found["msg"].removeprefix("Value error, ")
