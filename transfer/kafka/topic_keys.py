"""How requests and answers call a topic: by name, from some version on by id (KIP-516)."""

from __future__ import annotations

from protocol.codec.wire import read_uvarint, string_length


def written(name: str) -> bytes:
    """A name as a compact string."""
    text = name.encode()
    return string_length(len(text)) + text


def read_key(frame: memoryview, pos: int, *, by_id: bool) -> tuple[bytes | str, int]:
    """The id or the name at `pos`, and where it ends."""
    if by_id:
        return bytes(frame[pos : pos + 16]), pos + 16
    size, pos = read_uvarint(frame, pos)
    return str(frame[pos : pos + size - 1], "utf-8"), pos + size - 1
