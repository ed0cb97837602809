"""Names of the objects of backups, derived from backup id, run, topic, partition and offset only.

    catalogue/<backup id>.json                               the manifest, written last
    data/<backup id>/<run>/<topic>/<partition>/<offset>.segment    record batches as the cluster stores them
    data/<backup id>/<run>/<topic>/<partition>/<offset>.index      where its batches begin
    data/<backup id>/<run>/<topic>/<partition>/<offset>.avro       one record per row
    restores/<backup id>/<restore id>.json                   state, then report, of a restore

`<run>` is new for each run: two backups that were started with one id at the same time never write the same
object, so whichever puts its manifest first is whole (I8). What an interrupted run left stays, unnamed by any
manifest, below the id of its backup.
"""

from __future__ import annotations

import re
import secrets

from protocol.types import TopicPartition

CATALOGUE = "catalogue/"
_SUFFIX = ".json"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def check_id(backup_id: str) -> str:
    """`backup_id` if it can be part of a key; ValueError otherwise."""
    if not _ID.fullmatch(backup_id):
        raise ValueError(
            f"{backup_id!r} is no backup id: use up to 128 of letters, digits, '.', '_', '-', "
            "beginning with a letter or digit"
        )
    return backup_id


def manifest_key(backup_id: str) -> str:
    return f"{CATALOGUE}{backup_id}{_SUFFIX}"


def backup_id_of(key: str) -> str | None:
    """The inverse of `manifest_key`; None for a foreign object."""
    if not (key.startswith(CATALOGUE) and key.endswith(_SUFFIX)):
        return None
    backup_id = key[len(CATALOGUE) : -len(_SUFFIX)]
    return backup_id if _ID.fullmatch(backup_id) else None


def data_prefix(backup_id: str) -> str:
    return f"data/{backup_id}/"


def new_run() -> str:
    return secrets.token_hex(8)


def object_key(backup_id: str, run: str, tp: TopicPartition, first_offset: int, suffix: str) -> str:
    return f"{data_prefix(backup_id)}{run}/{tp.topic}/{tp.partition:05d}/{first_offset:020d}.{suffix}"


def restore_key(backup_id: str, restore_id: str) -> str:
    return f"restores/{backup_id}/{restore_id}{_SUFFIX}"
