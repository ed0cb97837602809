"""Which backup is the newest of a name, and what `validate` calls damaged."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from connectors import catalogue
from connectors.errors import BackupError, DamagedBackup, ObjectStoreError
from connectors.manifest import Manifest
from connectors.object_store import ObjectStore, ObjectStoreSettings, open_store
from tests.unit.connectors.logs import chunk, numbered
from tests.unit.connectors.test_formats import Written

pytestmark = pytest.mark.s3


def named(backup_id: str) -> Manifest:
    return Manifest(
        backup_id=backup_id,
        cluster_id="c",
        format="segment",
        compression="as stored",
        started_ms=1,
        finished_ms=2,
        topics=(),
        groups=(),
    )


async def test_the_newest_backup_is_of_that_name_and_of_no_longer_one(store: ObjectStore) -> None:
    for backup_id in (
        "flights-20260101T000000Z",
        "flights-20260102T000000Z",
        "flights-daily-20260103T000000Z",
        "flights-before-the-upgrade",
    ):
        await catalogue.write_manifest(store, named(backup_id))
    assert (await catalogue.newest_backup(store, "flights")).backup_id == "flights-20260102T000000Z"
    assert (await catalogue.newest_backup(store, "flights-daily")).backup_id.startswith("flights-daily-")
    with pytest.raises(BackupError, match="isthmus backup create flights-before; with --id there are"):
        await catalogue.newest_backup(store, "flights-before")


async def test_a_newest_backup_that_is_damaged_is_not_passed_over(store: ObjectStore) -> None:
    for day in (1, 2):
        await catalogue.write_manifest(store, named(f"flights-2026010{day}T000000Z"))
    await store.put("catalogue/flights-20260102T000000Z.json", b"{")
    with pytest.raises(DamagedBackup, match=r"20260102.*not a manifest.*--id flights-20260101T000000Z"):
        await catalogue.newest_backup(store, "flights")


async def test_an_index_that_is_gone_is_damage(store: ObjectStore) -> None:
    manifest = await Written(store, "segment").write(chunk([numbered(5)]))
    (entry,) = manifest.objects()
    assert entry.index_key is not None
    await store.delete([entry.index_key])
    found = await catalogue.validate(store, manifest)
    assert found.exit_code == 3
    assert entry.index_key in found.damaged[0]


async def test_a_store_that_does_not_answer_is_no_damage(
    store: ObjectStore, store_settings: ObjectStoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = await Written(store, "segment").write(chunk([numbered(5)]))
    refused = ObjectStoreError("read", "s3://b/k", "SlowDown Please reduce your request rate.")

    async def get(key: str, start: int = 0, length: int | None = None) -> bytes:
        raise refused

    monkeypatch.setattr(store, "get", get)
    with pytest.raises(ObjectStoreError, match="SlowDown"):
        await catalogue.validate(store, manifest)


@asynccontextmanager
async def breaking_off(times: int) -> AsyncIterator[str]:
    """An S3 API whose answers end in the middle of the body so many times."""
    left = times

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                body = b"" if head.startswith(b"HEAD") else b"0123456789"
                cut = bool(body) and left > 0
                left -= cut
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
                writer.write(body[:4] if cut else body)
                await writer.drain()
                if cut:
                    break
        writer.close()
        await writer.wait_closed()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.current_task()
        assert serving is not None
        at_work.add(serving)
        await serve(reader, writer)

    at_work: set[asyncio.Task[None]] = set()
    server = await asyncio.start_server(served, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*at_work, return_exceptions=True)


async def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    async with breaking_off(2) as endpoint:
        settings = ObjectStoreSettings(
            bucket="bucket", endpoint=endpoint, access_key="a", secret_key="b", max_attempts=3
        )
        async with open_store(settings) as store:
            assert await store.get("key") == b"0123456789"


async def test_an_answer_that_always_breaks_off_is_an_error() -> None:
    async with breaking_off(100) as endpoint:
        settings = ObjectStoreSettings(
            bucket="bucket", endpoint=endpoint, access_key="a", secret_key="b", max_attempts=2
        )
        async with open_store(settings) as store:
            with pytest.raises(ObjectStoreError, match="cannot read s3://bucket/key"):
                await store.get("key")


async def test_a_bucket_that_two_make_at_once_is_there_for_both(
    store_settings: ObjectStoreSettings,
) -> None:
    settings = store_settings.model_copy(update={"region": "eu-west-1"})

    async def put(n: int) -> None:
        async with open_store(settings) as store:
            await store.put(f"from/{n}", b"x")

    await asyncio.gather(*map(put, range(3)))
