"""The CRC-32C (RFC 3720) of a batch whose header is replaced, without reading its payload again.

Owns the arithmetic: a checksum is linear, so what a change in front of `length` bytes does to it depends on
the change and on `length` alone. A payload that does not fit its old checksum does not fit the new one
either: damage stays visible to whoever looks next, however often headers are replaced.

Polynomials over GF(2) are numbers here, the bit of x^0 being the highest of 32 (as in the checksum itself).
"""

from __future__ import annotations

from array import array
from functools import cache
from typing import Final

import crc32c

_CRC_32C: Final = 0x82F63B78
_X0: Final = 0x8000_0000
_X8: Final = 0x0080_0000
_ALL: Final = 0xFFFF_FFFF
_BLOCK_BITS: Final = 12
_IN_BLOCK: Final = (1 << _BLOCK_BITS) - 1
_ZEROS: Final = memoryview(bytes(_IN_BLOCK))


def with_other_front(crc: int, front_crc: int, new_front_crc: int, length: int) -> int:
    """`crc` is that of a front with the checksum `front_crc` and `length` bytes behind it; what it becomes
    when another front, just as long, takes the place of the first."""
    # A few zero bytes are read faster than reckoned; whole blocks are reckoned, with a table for each number.
    value: int = crc32c.crc32c(_ZEROS[: length & _IN_BLOCK], front_crc ^ new_front_crc ^ _ALL) ^ _ALL
    blocks = length >> _BLOCK_BITS
    place = 0
    while blocks:
        if digit := blocks & 0xFF:
            table = _steps_over(place, digit)
            value = (
                table[value & 0xFF]
                ^ table[0x100 | value >> 8 & 0xFF]
                ^ table[0x200 | value >> 16 & 0xFF]
                ^ table[0x300 | value >> 24]
            )
        blocks >>= 8
        place += 1
    return crc ^ value


@cache
def _steps_over(place: int, digit: int) -> array[int]:
    """For each byte of a value, lowest first: what becomes of it behind `digit * 256**place` blocks of zero
    bytes. 4 KB each, at most 255 for each place that lengths have."""
    factor = _factor(place, digit)
    bits = []
    for _ in range(32):  # the factor times x^0, x^1, ...: the highest bit comes first
        bits.append(factor)
        factor = factor >> 1 ^ (_CRC_32C if factor & 1 else 0)
    table = array("I")
    for byte in range(31, -1, -8):
        values = [0]
        for bit in range(byte, byte - 8, -1):
            one = bits[bit]
            values += [value ^ one for value in values]
        table.extend(values)
    return table


@cache
def _factor(place: int, digit: int) -> int:
    """x to the power of 8 for each byte of `digit * 256**place` blocks."""
    lowest = digit & -digit
    if digit != lowest:
        return _product(_factor(place, digit ^ lowest), _factor(place, lowest))
    if digit > 1:
        half = _factor(place, digit >> 1)
    elif place:
        half = _factor(place - 1, 128)
    else:
        return _of_a_block()
    return _product(half, half)


def _of_a_block() -> int:
    factor = _X8
    for _ in range(_BLOCK_BITS):
        factor = _product(factor, factor)
    return factor


def _product(one: int, other: int) -> int:
    """Of two polynomials, modulo that of CRC-32C."""
    result = 0
    while one:
        if one & _X0:
            result ^= other
        one = one << 1 & 0xFFFF_FFFF
        other = other >> 1 ^ (_CRC_32C if other & 1 else 0)
    return result
