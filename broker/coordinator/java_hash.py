"""Java's `String.hashCode` and the partition of `__consumer_offsets` that a group lives in.

Every Kafka broker and tool computes the partition this way, so it must agree to the bit: the hash runs over
UTF-16 code units (a character outside the BMP counts as its two surrogates), and Kafka's `Utils.abs` maps the
one integer without a positive counterpart to 0.
"""

from __future__ import annotations

_UINT32 = 0xFFFFFFFF
_INT32_SIGN = 0x80000000


def java_string_hash(text: str) -> int:
    """Return Java's 32-bit signed hash of `text`."""
    units = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & _UINT32
    return value - (1 << 32) if value & _INT32_SIGN else value


def partition_for(group_id: str, partition_count: int) -> int:
    """Return the offsets partition of `group_id` among `partition_count` partitions."""
    value = java_string_hash(group_id)
    return (0 if value == -_INT32_SIGN else abs(value)) % partition_count
