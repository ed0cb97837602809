"""A real S3 API for the package's tests, and chunks as a cluster would hand them out."""

import random
from collections.abc import AsyncIterator, Iterator

import pytest

from connectors.object_store import ObjectStore, ObjectStoreSettings, open_store
from tests.support.s3 import S3Server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def store_settings(s3: S3Server) -> ObjectStoreSettings:
    return ObjectStoreSettings(
        bucket=f"test-{random.getrandbits(64):016x}",
        prefix="some/prefix",
        endpoint=s3.endpoint,
        access_key=s3.access_key,
        secret_key=s3.secret_key,
        create_bucket=True,
        connections=4,
    )


@pytest.fixture
async def store(store_settings: ObjectStoreSettings) -> AsyncIterator[ObjectStore]:
    async with open_store(store_settings) as opened:
        yield opened
