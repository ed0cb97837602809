"""What people want of a link: paused and restarted parts of it, settings changed while it runs.

Owns the records `control/…` of the progress topic (pure), so that a wish holds for all workers, survives
restarts, and can be said from any host that reaches the target. What is paused holds for the whole link, a
topic or a partition; the widest that covers a partition is named as the reason.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from protocol.types import TopicPartition
from replicator.settings import LinkSettings
from replicator.wrong_values import in_words

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_log = logging.getLogger("isthmus.replicator")

_PAUSED, _RESTART, _SETTING = "control/paused/", "control/restart/", "control/settings/"
_ALL_SETTINGS = "control/settings"
"""Where versions before stored them together; a row of its own counts before it."""

LIVE_SETTINGS = frozenset(
    {
        "topics",
        "topics_exclude",
        "groups",
        "groups_exclude",
        "rate_limit",
        "refresh_topics_interval_s",
        "sync_topic_configs_interval_s",
        "sync_topic_acls_interval_s",
        "sync_group_offsets_interval_s",
        "emit_checkpoints_interval_s",
        "emit_offset_syncs_interval_s",
        "emit_heartbeats_interval_s",
        "progress_interval_s",
        "progress_bytes",
        "retry_refused_s",
    }
)
"""Those that a running link takes on; all others need a restart with a changed file."""


class Scope(NamedTuple):
    """The link (no topic), a topic, or a partition."""

    topic: str | None = None
    partition: int | None = None

    def covers(self, tp: TopicPartition) -> bool:
        """Whether `tp` is in it."""
        return self.topic in (None, tp.topic) and self.partition in (None, tp.partition)

    def within(self, wider: Scope) -> bool:
        """Whether all of this is in `wider`."""
        return wider.topic in (None, self.topic) and wider.partition in (None, self.partition)

    @property
    def path(self) -> str:
        """As in keys."""
        if self.topic is None:
            return "link"
        return f"topic/{self.topic}" if self.partition is None else f"partition/{self.topic}/{self.partition}"

    @classmethod
    def of_path(cls, path: str) -> Scope:
        """Raises ValueError."""
        kind, *rest = path.split("/")
        if kind == "link" and not rest:
            return cls()
        if kind == "topic" and len(rest) == 1:
            return cls(rest[0])
        if kind == "partition" and len(rest) == 2:
            return cls(rest[0], int(rest[1]))
        raise ValueError(f"{path!r} is neither link, topic nor partition")

    def __str__(self) -> str:
        if self.topic is None:
            return "the link"
        return f"topic {self.topic}" if self.partition is None else f"partition {self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Wish:
    """Who asked for it, when (ms), and why."""

    by: str
    at_ms: int
    why: str = ""

    def __str__(self) -> str:
        return f"by {self.by}" + (f": {self.why}" if self.why else "")


@dataclass(frozen=True, slots=True)
class Desired:
    """All that is asked for now."""

    paused: Mapping[Scope, Wish] = field(default_factory=dict)
    restarts: Mapping[Scope, Wish] = field(default_factory=dict)
    """The last one of each scope."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, notes: Mapping[bytes, bytes]) -> Desired:
        """From the rows of the progress topic; one that cannot be read counts for nothing, aloud."""
        paused: dict[Scope, Wish] = {}
        restarts: dict[Scope, Wish] = {}
        settings: dict[str, Any] = {}
        earlier: dict[str, Any] = {}
        for key, value in notes.items():
            text = key.decode(errors="replace")
            try:
                if text.startswith(_PAUSED):
                    paused[Scope.of_path(text.removeprefix(_PAUSED))] = _wish(value)
                elif text.startswith(_RESTART):
                    restarts[Scope.of_path(text.removeprefix(_RESTART))] = _wish(value)
                elif text.startswith(_SETTING):
                    settings[text.removeprefix(_SETTING)] = json.loads(value)
                elif text == _ALL_SETTINGS:
                    earlier = dict(json.loads(value))
            except (KeyError, TypeError, ValueError) as error:
                _log.error("%s of a link cannot be read: %r", text, error)
        holds = {name: value for name, value in (earlier | settings).items() if value is not None}
        return cls(paused, restarts, holds)

    def paused_because(self, tp: TopicPartition) -> str:
        """Why a partition is to stand still; empty: it is not."""
        for scope in (Scope(), Scope(tp.topic), Scope(*tp)):
            wish = self.paused.get(scope)
            if wish is not None:
                return f"paused with {scope} {wish}" if scope != Scope(*tp) else f"paused {wish}"
        return ""

    @property
    def paused_as_a_whole(self) -> Wish | None:
        """Why the whole link is to stand still; None: it is not."""
        return self.paused.get(Scope())

    def applied_to(self, settings: LinkSettings) -> LinkSettings:
        """The link's settings with what was changed while it ran. Raises ValueError."""
        if not self.settings:
            return settings
        return changed(settings, self.settings)


def _wish(value: bytes) -> Wish:
    data = json.loads(value)
    return Wish(str(data["by"]), int(data["at_ms"]), str(data.get("why", "")))


def not_live(name: str) -> str | None:
    """Why a running link takes on no setting of that name; None: it does."""
    if name in LIVE_SETTINGS:
        return None
    if name in LinkSettings.model_fields:
        return f"{name}: cannot be changed while the link runs (only {', '.join(sorted(LIVE_SETTINGS))})"
    near = get_close_matches(name, sorted(LIVE_SETTINGS), n=1)
    return f"{name}: is no setting of a link" + (f"; did you mean '{near[0]}'?" if near else "")


def changed(settings: LinkSettings, values: Mapping[str, Any]) -> LinkSettings:
    """Checked as a file is. Raises ValueError for what is wrong, or needs a restart."""
    for name in sorted(values):
        if wrong := not_live(name):
            raise ValueError(wrong)
    whole = {name: getattr(settings, name) for name in LinkSettings.model_fields}
    try:
        return LinkSettings.model_validate(whole | dict(values))
    except ValidationError as error:
        raise ValueError("; ".join(_said(found) for found in error.errors(include_url=False))) from error


def _said(found: ErrorDetails) -> str:
    """What was given is named, unless all settings were."""
    where = ".".join(str(part) for part in found["loc"])
    return f"{where}: {in_words([found])}" if where else found["msg"].removeprefix("Value error, ")


def pause_rows(scope: Scope, wish: Wish) -> dict[str, bytes | None]:
    """Rows that pause it."""
    return {_PAUSED + scope.path: _row(wish)}


def resume_rows(scope: Scope, paused: Iterable[Scope]) -> dict[str, bytes | None]:
    """Rows that end its pause and those of its parts."""
    return {_PAUSED + one.path: None for one in paused if one.within(scope)}


def restart_rows(scope: Scope, wish: Wish) -> dict[str, bytes | None]:
    """Rows that have it begun anew from its progress, once."""
    return {_RESTART + scope.path: _row(wish)}


def settings_rows(values: Mapping[str, Any], unset: Iterable[str] = ()) -> dict[str, bytes | None]:
    """A row for each, so that two who change different ones at the same moment undo nothing of each other."""
    new = {**values, **dict.fromkeys(unset)}
    return {_SETTING + name: json.dumps(value, separators=(",", ":")).encode() for name, value in new.items()}


def _row(wish: Wish) -> bytes:
    return json.dumps(asdict(wish), separators=(",", ":")).encode()
