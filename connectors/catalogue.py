"""The catalogue: which backups exist, what one holds, and whether that is still true.

Owns listing, reading and writing manifests and checking objects against them. `validate` reads every object
again, checks size and SHA-256, decodes every batch and counts; it changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from connectors import layout, manifest
from connectors.backup_source import BackupSource
from connectors.errors import (
    BackupError,
    ConnectorError,
    DamagedBackup,
    NoSuchBackup,
    ObjectExists,
    ObjectMissing,
)
from connectors.manifest import Manifest, ObjectEntry
from connectors.object_store import ObjectStore
from protocol.errors import ProtocolError
from protocol.records.header import check_crc, iter_headers
from protocol.records.reading import read_records

_AT_ONCE = 4


class Validation(BaseModel):
    """What re-reading a backup found."""

    model_config = ConfigDict(frozen=True)

    backup_id: str
    objects: int
    records: int
    bytes: int
    damaged: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        return 3 if self.damaged else 0


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One line of a listing; `manifest` is None when it cannot be read, and `problem` says why."""

    backup_id: str
    manifest: Manifest | None
    problem: str = ""


async def list_backups(store: ObjectStore) -> list[CatalogueEntry]:
    """All backups, by id. A damaged manifest is shown, not hidden."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def entry(backup_id: str) -> CatalogueEntry:
        async with gate:
            try:
                return CatalogueEntry(backup_id, await read_manifest(store, backup_id))
            except ConnectorError as error:
                return CatalogueEntry(backup_id, None, str(error))

    return list(await asyncio.gather(*map(entry, await _ids(store))))


async def _ids(store: ObjectStore) -> list[str]:
    found = (layout.backup_id_of(info.key) for info in await store.list(layout.CATALOGUE))
    return [backup_id for backup_id in found if backup_id is not None]


async def newest_backup(store: ObjectStore, name: str) -> Manifest:
    """The last one with an id that is `name` and a time. Raises ConnectorError when there is none, and when
    it cannot be read: nobody who asked for the newest gets an older one without a word."""
    ids = await _ids(store)
    timed = re.compile(re.escape(name) + r"-\d{8}T\d{6}Z")
    mine = [backup_id for backup_id in ids if timed.fullmatch(backup_id)]
    if not mine:
        others = [backup_id for backup_id in ids if backup_id.startswith(f"{name}-")]
        named = f"; with --id there are {', '.join(others)}" if others else ""
        raise BackupError(
            f"there is no backup of '{name}' in {store.location()}: isthmus backup create {name}{named}"
        )
    try:
        return await read_manifest(store, mine[-1])
    except ConnectorError as error:
        before = f"; the one before it: --id {mine[-2]}" if mine[1:] else ""
        raise DamagedBackup(f"the newest backup of '{name}': {error}{before}") from error


async def read_manifest(store: ObjectStore, backup_id: str) -> Manifest:
    """Raises ConnectorError when there is no such backup or its manifest is damaged."""
    key = layout.manifest_key(layout.check_id(backup_id))
    try:
        data = await store.get(key)
    except ObjectMissing as error:
        raise NoSuchBackup(f"there is no backup {backup_id} in {store.location()}") from error
    return manifest.decode(data, store.location(key))


async def write_manifest(store: ObjectStore, held: Manifest) -> None:
    """Makes the backup exist. Raises BackupError when the id is taken: a backup is never replaced."""
    key, data = layout.manifest_key(held.backup_id), manifest.encode(held)
    try:
        await store.put(key, data, only_if_absent=True)
    except ObjectExists as error:
        if await store.get(key) == data:
            return  # the answer to our own write was lost, and it was sent again
        raise BackupError(f"backup {held.backup_id} exists already in {store.location()}") from error


async def validate(store: ObjectStore, held: Manifest) -> Validation:
    """Reads everything again. Raises ObjectStoreError when the store does not let it: that is no damage."""
    source = BackupSource(store, held)
    gate = asyncio.Semaphore(_AT_ONCE)

    async def check(entry: ObjectEntry) -> tuple[int, str]:
        async with gate:
            try:
                await _check_index(store, entry)
                return await _count(source, entry), ""
            except (DamagedBackup, ObjectMissing) as error:
                return 0, str(error)
            except ProtocolError as error:
                return 0, f"{entry.key}: {error}"

    found = await asyncio.gather(*map(check, held.objects()))
    return Validation(
        backup_id=held.backup_id,
        objects=len(found),
        records=sum(records for records, _ in found),
        bytes=held.bytes,
        damaged=tuple(problem for _, problem in found if problem),
    )


async def _check_index(store: ObjectStore, entry: ObjectEntry) -> None:
    if entry.index_key is None:
        return
    index = await store.get(entry.index_key)
    if hashlib.sha256(index).hexdigest() != entry.index_sha256:
        raise DamagedBackup(f"{entry.index_key}: its SHA-256 is not the one in the manifest")


async def _count(source: BackupSource, entry: ObjectEntry) -> int:
    records = 0
    async for batches, _ in source.batches(entry, entry.first_offset):
        records += await asyncio.to_thread(_records, batches, entry)
    if records != entry.records:
        raise DamagedBackup(f"{entry.key}: {records} records, {entry.records} by the manifest")
    return records


def _records(batches: memoryview, entry: ObjectEntry) -> int:
    records = 0
    for pos, header in iter_headers(batches):
        if not check_crc(batches, pos, header):
            raise DamagedBackup(f"{entry.key}: the batch at offset {header.base_offset} is damaged")
        records += sum(record.offset >= entry.first_offset for record in read_records(batches, pos, header))
    return records
