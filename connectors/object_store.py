"""The one place that opens S3: any S3 API, through boto3 in threads, seen from asyncio.

Owns endpoint, credentials, retries and the wording of errors. It must not know what the objects mean.
Requests ask only for what S3 APIs have in common: put with Content-MD5, conditional put, ranged get, list,
multipart.
boto3 retries throttling, server errors and broken connections itself, until an answer begins; what it raises
after that is final, but for a body that breaks off.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from connectors.errors import ObjectExists, ObjectMissing, ObjectStoreError
from protocol.types import Buffer

T = TypeVar("T")

MIN_PART_BYTES = 5 * 1024 * 1024
"""S3 refuses smaller parts, except for the last one of an upload."""

_MISSING = {"NoSuchKey", "404", "NotFound"}
_EXISTS = {"PreconditionFailed", "ConditionalRequestConflict", "412", "BucketAlreadyOwnedByYou"}
_DELETE_AT_ONCE = 1000


class ObjectStoreSettings(BaseModel):
    """Where objects go. Without keys, boto3's own chain applies: environment, profile, instance role."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bucket: str = Field(min_length=3, max_length=63)
    prefix: str = ""
    """Put before every key; `a/b` and `a/b/` are the same."""
    endpoint: str | None = None
    region: str = "us-east-1"
    access_key: SecretStr | None = None
    secret_key: SecretStr | None = None
    session_token: SecretStr | None = None
    path_style: bool | None = None
    """Bucket in the path instead of the host name. By default: with an own endpoint, yes."""
    create_bucket: bool = False
    connections: int = Field(default=8, ge=1, le=256)
    max_attempts: int = Field(default=5, ge=1)
    connect_timeout_s: float = Field(default=5, gt=0)
    read_timeout_s: float = Field(default=60, gt=0)

    def location(self, key: str = "") -> str:
        """What error texts and reports call an object; holds no secret."""
        return f"s3://{self.bucket}/{self.key(key)}" + (f" at {self.endpoint}" if self.endpoint else "")

    def key(self, key: str) -> str:
        prefix = self.prefix.strip("/")
        return f"{prefix}/{key}" if prefix else key


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    key: str
    """Without the store's prefix."""
    size: int


def create_client(settings: ObjectStoreSettings) -> Any:
    """A boto3 S3 client, which may be shared by threads."""

    import boto3  # takes a third of a second, which not everybody who imports this module needs
    from botocore.config import Config

    def reveal(secret: SecretStr | None) -> str | None:
        return secret.get_secret_value() if secret else None

    path_style = settings.path_style if settings.path_style is not None else settings.endpoint is not None
    session = boto3.session.Session()
    return session.client(
        "s3",
        endpoint_url=settings.endpoint,
        region_name=settings.region,
        aws_access_key_id=reveal(settings.access_key),
        aws_secret_access_key=reveal(settings.secret_key),
        aws_session_token=reveal(settings.session_token),
        config=Config(
            retries={"mode": "standard", "total_max_attempts": settings.max_attempts},
            connect_timeout=settings.connect_timeout_s,
            read_timeout=settings.read_timeout_s,
            max_pool_connections=settings.connections,
            s3={"addressing_style": "path" if path_style else "auto"},
            # The newer checksum headers are unknown to many S3 APIs; Content-MD5 is known to all.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


@asynccontextmanager
async def open_store(settings: ObjectStoreSettings) -> AsyncIterator[ObjectStore]:
    """The store, checked: the bucket exists (or is created when the settings say so)."""
    executor = ThreadPoolExecutor(settings.connections, thread_name_prefix="s3")
    client = None
    try:
        client = await asyncio.get_running_loop().run_in_executor(executor, create_client, settings)
        store = ObjectStore(settings, client, executor)
        await store.check_bucket()
        yield store
    finally:
        if client is not None:
            client.close()
        executor.shutdown(wait=False, cancel_futures=True)


class ObjectStore:
    """Keys are relative to the store's prefix. Every method raises `ObjectStoreError` or a kind of it."""

    def __init__(self, settings: ObjectStoreSettings, client: Any, executor: ThreadPoolExecutor) -> None:
        self.settings = settings
        self._client = client
        self._executor = executor

    def location(self, key: str = "") -> str:
        return self.settings.location(key)

    async def check_bucket(self) -> None:
        bucket = self.settings.bucket
        try:
            await self._call("reach bucket", "", lambda: self._client.head_bucket(Bucket=bucket))
        except ObjectMissing:
            if not self.settings.create_bucket:
                raise
            region = self.settings.region
            where = {} if region == "us-east-1" else {"LocationConstraint": region}
            extra = {"CreateBucketConfiguration": where} if where else {}
            with suppress(ObjectExists):  # somebody else did, at the same time
                await self._call(
                    "create bucket", "", lambda: self._client.create_bucket(Bucket=bucket, **extra)
                )

    async def put(self, key: str, body: Buffer, *, only_if_absent: bool = False) -> None:
        """One request; the store checks the body against its MD5. `ObjectExists` when the key is taken."""
        extra = {"IfNoneMatch": "*"} if only_if_absent else {}

        def put() -> None:
            self._client.put_object(
                Bucket=self.settings.bucket,
                Key=self.settings.key(key),
                Body=bytes(body),
                ContentMD5=_md5(body),
                **extra,
            )

        await self._call("write", key, put)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """The object, or `length` bytes from `start`; never fewer than the store announced."""
        from botocore.exceptions import HTTPClientError, IncompleteReadError

        extra = {}
        if start or length is not None:
            extra = {"Range": f"bytes={start}-" + ("" if length is None else str(start + length - 1))}

        def get() -> bytes:
            for left in reversed(range(self.settings.max_attempts)):
                answer = self._client.get_object(
                    Bucket=self.settings.bucket, Key=self.settings.key(key), **extra
                )
                try:
                    with closing(answer["Body"]) as body:  # `with body` would give urllib3's, and its errors
                        data: bytes = body.read()
                    return data
                except (HTTPClientError, IncompleteReadError):
                    if not left:
                        raise
            raise AssertionError("unreachable")

        return await self._call("read", key, get)

    async def size(self, key: str) -> int:
        head = await self._call(
            "look at",
            key,
            lambda: self._client.head_object(Bucket=self.settings.bucket, Key=self.settings.key(key)),
        )
        return int(head["ContentLength"])

    async def list(self, prefix: str) -> list[ObjectInfo]:
        """All objects whose key begins with `prefix`, in key order."""
        found: list[ObjectInfo] = []
        cut = len(self.settings.key(""))

        def page(token: str | None) -> Any:
            extra = {"ContinuationToken": token} if token else {}
            return self._client.list_objects_v2(
                Bucket=self.settings.bucket, Prefix=self.settings.key(prefix), **extra
            )

        token: str | None = None
        while True:
            answer = await self._call("list", prefix, partial(page, token))
            found += [ObjectInfo(item["Key"][cut:], item["Size"]) for item in answer.get("Contents", ())]
            token = answer.get("NextContinuationToken")
            if token is None:
                return found

    async def delete(self, keys: Collection[str]) -> None:
        names = [self.settings.key(key) for key in keys]
        for start in range(0, len(names), _DELETE_AT_ONCE):
            part = [{"Key": name} for name in names[start : start + _DELETE_AT_ONCE]]

            def delete(part: list[dict[str, str]] = part) -> None:
                answer = self._client.delete_objects(
                    Bucket=self.settings.bucket, Delete={"Objects": part, "Quiet": True}
                )
                if errors := answer.get("Errors"):
                    raise OSError(f"{errors[0]['Key']}: {errors[0].get('Message', errors[0].get('Code'))}")

            await self._call("delete", part[0]["Key"], delete)

    def upload(self, key: str) -> Upload:
        """A multipart upload: nothing is visible under `key` before `complete`."""
        return Upload(self, key)

    async def _call(self, action: str, key: str, function: Callable[[], T]) -> T:
        from botocore.exceptions import BotoCoreError, ClientError

        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, function)
        except ClientError as error:
            details = error.response.get("Error", {})
            code = str(details.get("Code", "?"))
            kind = (
                ObjectMissing if code in _MISSING or code == "NoSuchBucket"
                else ObjectExists if code in _EXISTS
                else ObjectStoreError
            )  # fmt: skip
            raise kind(action, self.location(key), f"{code} {details.get('Message', '')}".strip()) from error
        except (BotoCoreError, OSError) as error:
            raise ObjectStoreError(action, self.location(key), str(error)) from error


class Upload:
    """One multipart upload; `abort` removes the parts, which would be paid for otherwise."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store = store
        self._key = key
        self._id: str | None = None
        self._parts: list[dict[str, Any]] = []

    async def add(self, part: Buffer) -> None:
        """Parts in order, each but the last at least `MIN_PART_BYTES`."""
        where = self._where()
        if self._id is None:
            started = await self._store._call(
                "start the upload of", self._key, lambda: self._store._client.create_multipart_upload(**where)
            )
            self._id = started["UploadId"]
        number = len(self._parts) + 1

        def send() -> Any:
            return self._store._client.upload_part(
                **where, UploadId=self._id, PartNumber=number, Body=bytes(part), ContentMD5=_md5(part)
            )

        answer = await self._store._call(f"write part {number} of", self._key, send)
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})

    async def complete(self) -> None:
        def finish() -> None:
            self._store._client.complete_multipart_upload(
                **self._where(), UploadId=self._id, MultipartUpload={"Parts": self._parts}
            )

        await self._store._call("finish the upload of", self._key, finish)
        self._id = None

    async def abort(self) -> None:
        if self._id is None:
            return
        upload_id, self._id = self._id, None
        await self._store._call(
            "give up the upload of",
            self._key,
            lambda: self._store._client.abort_multipart_upload(**self._where(), UploadId=upload_id),
        )

    def _where(self) -> dict[str, str]:
        return {"Bucket": self._store.settings.bucket, "Key": self._store.settings.key(self._key)}


def _md5(body: Buffer) -> str:
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
