"""Asking something of a link from any host that reaches its target: pause, resume, restart, settings.

Owns reading what holds now, checking, and writing the records that the workers follow (`control`). With
`dry_run` nothing is written. Links with identical offsets have no workers that would follow, so they are
refused. Used by commands and REST alike.
"""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from protocol.client import NO_RETRIES
from protocol.types import TopicPartition
from replicator.progress import Progress, ProgressStore
from replicator.renaming import wrong_name
from replicator.settings import LinkSettings
from replicator.workers.control import (
    Desired,
    Scope,
    Wish,
    changed,
    not_live,
    pause_rows,
    restart_rows,
    resume_rows,
    settings_rows,
)
from replicator.workers.report import reports

_CONNECT_S = 5.0

Rows = dict[str, bytes | None]


class NotAsked(Exception):
    """It makes no sense now; the message says why."""


class WronglyAsked(NotAsked):
    """What it names is not there, or cannot be: a setting, a value, a topic's name."""


@dataclass(frozen=True, slots=True)
class Asked:
    """`text` says what follows; `partitions` are those known that it is about."""

    text: str
    partitions: tuple[TopicPartition, ...]
    done: bool

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {"done": self.done, "text": self.text, "partitions": [str(tp) for tp in self.partitions]}


def wish(why: str = "", by: str = "") -> Wish:
    """Of whoever runs this process, unless `by` says who."""
    return Wish(by or f"{getpass.getuser()}@{socket.gethostname()}", time.time_ns() // 1_000_000, why)


async def pause(settings: LinkSettings, scope: Scope, asked: Wish, *, dry_run: bool = False) -> Asked:
    """Its partitions stand still, after what is on its way has arrived, until resumed."""

    def rows(progress: Progress) -> tuple[Rows, str]:
        held = Desired.read(progress.notes).paused
        wider = [one for one in held if scope.within(one) and one != scope]
        also = f" ({', '.join(map(str, wider))} is paused already)" if wider else ""
        return pause_rows(scope, asked), f"{scope} of {settings.name} is paused{also}"

    return await _ask(settings, scope, rows, dry_run=dry_run)


async def resume(settings: LinkSettings, scope: Scope, *, dry_run: bool = False) -> Asked:
    """Ends the pause of the scope and of everything in it. Raises NotAsked."""

    def rows(progress: Progress) -> tuple[Rows, str]:
        held = Desired.read(progress.notes).paused
        wider = [one for one in held if scope.within(one) and one != scope]
        ending = resume_rows(scope, held)
        if wider:
            raise NotAsked(
                f"{scope} stays paused with {wider[0]}: resume that one (it was paused {held[wider[0]]})"
            )
        if not ending:
            raise NotAsked(f"nothing of {scope} of {settings.name} is paused")
        return ending, f"{scope} of {settings.name} goes on"

    return await _ask(settings, scope, rows, dry_run=dry_run)


async def restart(settings: LinkSettings, scope: Scope, asked: Wish, *, dry_run: bool = False) -> Asked:
    """Its partitions begin anew from their progress, also those that wait for a refused batch. Raises
    NotAsked for a topic or partition that the link has nothing of: unlike a pause, it does not hold for
    what comes."""

    def rows(progress: Progress) -> tuple[Rows, str]:
        known = {*progress.partitions(), *(tp for one in reports(progress.notes) for tp in one.partitions)}
        if scope.topic is not None and not any(map(scope.covers, known)):
            raise WronglyAsked(
                f"{settings.name} has nothing of {scope} to restart: isthmus links status shows what there is"
            )
        return restart_rows(scope, asked), f"{scope} of {settings.name} begins anew from its progress"

    return await _ask(settings, scope, rows, dry_run=dry_run)


async def set_values(
    settings: LinkSettings, values: Mapping[str, Any], *, unset: tuple[str, ...] = (), dry_run: bool = False
) -> Asked:
    """Changes settings of the running link. Raises NotAsked for those that cannot be, or are wrong."""
    for name in unset:
        if name in values:
            raise WronglyAsked(f"{name} cannot be set and unset at once")
        if wrong := not_live(name):
            raise WronglyAsked(wrong)

    def rows(progress: Progress) -> tuple[Rows, str]:
        before = dict(Desired.read(progress.notes).settings)
        after = {name: value for name, value in (before | dict(values)).items() if name not in unset}
        try:
            new = changed(settings, after)
        except ValueError as error:
            raise WronglyAsked(str(error)) from error
        names = [f"{name} = {value}" for name, value in values.items()]
        names += [f"{name} as in the file" for name in unset]
        names += no_longer_excluded(settings, before, new)
        return settings_rows(values, unset), f"{settings.name}: {'; '.join(names) or 'nothing changes'}"

    return await _ask(settings, Scope(), rows, dry_run=dry_run)


def no_longer_excluded(file: LinkSettings, before: Mapping[str, Any], new: LinkSettings) -> list[str]:
    """What lists lose, in words: one takes the place of the whole one before it, also of what that held by
    default (as MirrorMaker 2's). `before` is what was changed by command until now."""
    try:
        old = changed(file, before)
    except ValueError:  # it counted for nothing
        old = file
    found = []
    for name in ("topics_exclude", "groups_exclude"):
        left = getattr(new, name)
        dropped = [pattern for pattern in getattr(old, name) if pattern not in left]
        if dropped:
            found.append(f"{name} has no longer {', '.join(dropped)}")
    return found


async def _ask(
    settings: LinkSettings, scope: Scope, rows: Callable[[Progress], tuple[Rows, str]], *, dry_run: bool
) -> Asked:
    if scope.topic is not None and (wrong := wrong_name(scope.topic)):
        raise WronglyAsked(f"{wrong}; a partition is said by its number, and patterns are not taken")
    if settings.offsets == "identical":
        raise NotAsked(
            f"{settings.name} keeps offsets: it cannot be paused, resumed, restarted or changed while it"
            " runs. Stop its process (isthmus replicate), or change its file and start it again"
        )
    async with settings.target.client(
        "isthmus-cli", connect_timeout_s=_CONNECT_S, retry=NO_RETRIES
    ) as client:
        store = ProgressStore(client, settings.progress_topic, settings.internal_replication_factor)
        progress = await (store.refresh() if dry_run else store.load())
        new, text = rows(progress)
        if not dry_run:
            text += await _written(store, progress, new)
    about = tuple(sorted(tp for tp in progress.partitions() if scope.covers(tp)))
    return Asked(text, about, not dry_run)


async def _written(store: ProgressStore, progress: Progress, new: Rows) -> str:
    """Stores the rows, and says what somebody else has written between what was read and what is there now.
    Raises NotAsked where that holds and not this."""
    keys = {key: key.encode() for key in new}
    expected = {key: progress.changes[at] + (progress.notes.get(at) != new[key]) for key, at in keys.items()}
    await store.save_notes(new)
    await store.refresh()
    if any(progress.notes.get(at) != new[key] for key, at in keys.items()):
        raise NotAsked(
            "somebody else asked for something else at the same moment, and that holds: isthmus links status"
        )
    if any(progress.changes[at] > expected[key] for key, at in keys.items()):
        return " (somebody else asked for something else at the same moment; this holds)"
    return ""
