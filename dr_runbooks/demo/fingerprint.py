"""A row's identity in the demonstration's bookkeeping: 8 bytes of BLAKE2b of its value (rows are unique)."""

from __future__ import annotations

import hashlib


def fingerprint(value: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "big")
