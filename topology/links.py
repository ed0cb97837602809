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
from replicator.wrong_values import in_words
from topology.models import Link, Topology

_ANYWHERE = "localhost:9092"
_SAME = Link.model_fields.keys() & LinkSettings.model_fields.keys()
"""Settings that a file names as the link does: by name, so that none is forgotten here."""


def link_between(source: ClusterEnd, target: ClusterEnd, link: Link) -> LinkSettings:
    """Raises ValidationError for settings that do not go together."""
    same = {name: getattr(link, name) for name in _SAME}
    same |= {
        "topics_exclude": (*TOPICS_EXCLUDE, *link.topics_exclude),
        "groups_exclude": (*GROUPS_EXCLUDE, *link.groups_exclude),
        "config_properties_exclude": (*CONFIG_PROPERTIES_EXCLUDE, *link.config_properties_exclude),
    }
    taken_over = TakeOver.of(source.alias) if link.take_over_mirrormaker else None
    return LinkSettings(source=source, target=target, take_over=taken_over, **same)


def link_problems(topology: Topology) -> Iterator[tuple[tuple[str, ...], str]]:
    """Where in the file, and what."""
    for name, link in topology.links.items():
        source, target = (ClusterEnd(alias=alias, bootstrap=_ANYWHERE) for alias in topology.link_ends(name))
        try:
            link_between(source, target, link)
        except ValidationError as error:
            for found in error.errors(include_url=False):
                at = ("links", name, *(str(part) for part in found["loc"][:1]))
                yield at, in_words([found]) if found["loc"] else found["msg"].removeprefix("Value error, ")
