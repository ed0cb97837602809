"""Small types that every part shares: topic partitions, buffers, topic ids.

Owns the names for things that travel through all layers. Knows nothing of messages or connections.
Topic ids are 16 raw bytes everywhere inside and Kafka's 22-character url-safe base64 in texts
(`org.apache.kafka.common.Uuid`, KIP-516).
"""

import base64
import binascii
import os
from typing import NamedTuple, NewType

Buffer = bytes | bytearray | memoryview
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
BrokerId = NewType("BrokerId", int)

ZERO_UUID = bytes(16)
"""No id: Kafka's way to say "this topic has no id" in fields that cannot be null."""
_METADATA_UUID = bytes(15) + b"\x01"
"""Kafka keeps this one for its own metadata topic and never hands it out."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_to_text(uuid: bytes) -> str:
    """Kafka's text of a 16-byte id: 22 characters of url-safe base64 without padding."""
    if len(uuid) != 16:
        raise ValueError(f"a topic id has 16 bytes, not {len(uuid)}")
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> bytes:
    """The 16 bytes behind Kafka's text of an id."""
    try:
        uuid = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        uuid = b""
    if len(uuid) != 16:
        raise ValueError(f"not a Kafka id (22 characters of url-safe base64): {text!r}")
    return uuid


def new_topic_id() -> bytes:
    """A random id that Kafka accepts too: not reserved, and its text does not start with a dash."""
    while True:
        uuid = bytearray(os.urandom(16))
        uuid[6] = uuid[6] & 0x0F | 0x40
        uuid[8] = uuid[8] & 0x3F | 0x80
        # A first byte of 0xf8..0xfb makes the text start with "-", which command lines take for an option.
        if not 0xF8 <= uuid[0] <= 0xFB and bytes(uuid) not in (ZERO_UUID, _METADATA_UUID):
            return bytes(uuid)
