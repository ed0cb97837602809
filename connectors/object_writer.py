"""Writing one object in pieces with bounded memory: one request when small, multipart when large.

Owns buffering, the checksum over everything written, and at most one part on its way while the next one
fills: memory is two parts per open object. What is given to `write` is copied once, into the part.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass

from connectors.object_store import MIN_PART_BYTES, ObjectStore, Upload
from protocol.types import Buffer


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object that the store has acknowledged."""

    key: str
    bytes: int
    sha256: str


class ObjectWriter:
    """`write` pieces, then `close`; `abort` instead leaves nothing behind."""

    def __init__(self, store: ObjectStore, key: str, part_bytes: int) -> None:
        self.key = key
        self._store = store
        self._part_bytes = max(part_bytes, MIN_PART_BYTES)
        self._pieces: list[Buffer] = []
        self._buffered = 0
        self._size = 0
        self._sha = hashlib.sha256()
        self._upload: Upload | None = None
        self._sending: asyncio.Task[None] | None = None

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._size

    async def write(self, piece: Buffer) -> None:
        """Keeps a view of `piece` until its part is sent; waits while a part is still on its way."""
        length = len(piece)
        self._pieces.append(piece)
        self._buffered += length
        self._size += length
        if self._buffered >= self._part_bytes:
            await self._sent()
            self._sending = asyncio.create_task(self._send_part(self._take()))

    async def close(self) -> StoredObject:
        """Returns once the whole object is in the store."""
        await self._sent()
        if self._upload is None:
            body = self._take()
            await asyncio.to_thread(self._sha.update, body)
            await self._store.put(self.key, body)
        else:
            if self._buffered:
                await self._send_part(self._take())
            await self._upload.complete()
        return StoredObject(self.key, self._size, self._sha.hexdigest())

    async def abort(self) -> None:
        """Gives the object up; parts that were sent are removed."""
        self._pieces.clear()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait({self._sending})
            self._sending = None
        if self._upload is not None:
            await self._upload.abort()

    async def _sent(self) -> None:
        if self._sending is not None:
            sending, self._sending = self._sending, None
            await sending

    async def _send_part(self, part: bytes) -> None:
        if self._upload is None:
            self._upload = self._store.upload(self.key)
        await asyncio.to_thread(self._sha.update, part)
        await self._upload.add(part)

    def _take(self) -> bytes:
        part = b"".join(self._pieces)
        self._pieces.clear()
        self._buffered = 0
        return part
