"""The S3 client against a real S3 API: what it stores, what it refuses, what its errors say."""

import pytest

from connectors.errors import ObjectExists, ObjectMissing, ObjectStoreError
from connectors.object_store import MIN_PART_BYTES, ObjectStore, ObjectStoreSettings, open_store
from connectors.object_writer import ObjectWriter

pytestmark = pytest.mark.s3


async def test_an_object_is_read_as_written_whole_and_in_ranges(store: ObjectStore) -> None:
    await store.put("a/b", b"0123456789")
    assert await store.get("a/b") == b"0123456789"
    assert await store.get("a/b", 3, 4) == b"3456"
    assert await store.get("a/b", 7) == b"789"
    assert await store.size("a/b") == 10


async def test_listing_is_complete_in_order_and_without_the_prefix(store: ObjectStore) -> None:
    for name in ("x/2", "x/1", "y/1"):
        await store.put(name, b"data")
    assert [(info.key, info.size) for info in await store.list("x/")] == [("x/1", 4), ("x/2", 4)]
    await store.delete(["x/1", "x/2"])
    assert [info.key for info in await store.list("")] == ["y/1"]


async def test_a_conditional_write_never_replaces(store: ObjectStore) -> None:
    await store.put("once", b"first", only_if_absent=True)
    with pytest.raises(ObjectExists, match="once"):
        await store.put("once", b"second", only_if_absent=True)
    assert await store.get("once") == b"first"


async def test_errors_name_bucket_key_and_endpoint(store: ObjectStore) -> None:
    with pytest.raises(ObjectMissing) as raised:
        await store.get("not/there")
    text = str(raised.value)
    assert f"s3://{store.settings.bucket}/some/prefix/not/there" in text
    assert store.settings.endpoint is not None
    assert store.settings.endpoint in text


async def test_a_missing_bucket_is_named(store_settings: ObjectStoreSettings) -> None:
    settings = store_settings.model_copy(update={"create_bucket": False})
    with pytest.raises(ObjectMissing, match=settings.bucket):
        async with open_store(settings):
            pass


async def test_an_endpoint_that_is_away_is_named_and_secrets_are_not() -> None:
    settings = ObjectStoreSettings(
        bucket="bucket", endpoint="http://127.0.0.1:9", access_key="key", secret_key="hush", max_attempts=1
    )
    with pytest.raises(ObjectStoreError, match=r"http://127\.0\.0\.1:9") as raised:
        async with open_store(settings):
            pass
    assert "hush" not in str(raised.value)
    assert "hush" not in repr(settings)


async def test_a_large_object_goes_up_in_parts_and_is_the_same(store: ObjectStore) -> None:
    writer = ObjectWriter(store, "large", MIN_PART_BYTES)
    pieces = [bytes([n]) * 1_500_000 for n in range(9)]
    for piece in pieces:
        await writer.write(memoryview(piece))
    stored = await writer.close()
    assert stored.bytes == await store.size("large") == 13_500_000
    assert await store.get("large") == b"".join(pieces)


async def test_an_aborted_object_leaves_nothing(store: ObjectStore) -> None:
    writer = ObjectWriter(store, "gone", MIN_PART_BYTES)
    await writer.write(b"x" * (MIN_PART_BYTES + 1))
    await writer.write(b"x" * (MIN_PART_BYTES + 1))
    await writer.abort()
    assert await store.list("") == []
    listed = await store._call(
        "list uploads of", "", lambda: store._client.list_multipart_uploads(Bucket=store.settings.bucket)
    )
    assert not listed.get("Uploads")
