"""The rolling digest of a ledger: CRC-32C over the CRC fields of the copied batches, in order.

Owns one function, so that links, backups and the audit cannot disagree about it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import crc32c


def extend_digest(digest: int, crcs: Sequence[int]) -> int:
    """The digest after appending the CRC fields (unsigned 32 bit) of more batches."""
    return int(crc32c.crc32c(struct.pack(f">{len(crcs)}I", *crcs), digest))
