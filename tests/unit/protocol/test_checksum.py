"""A checksum whose front was replaced is the one that reading all of it gives."""

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records.checksum import with_other_front

_fronts = st.binary(min_size=40, max_size=40)
_EDGES = [0, 1, 4095, 4096, 4097, 8191, 65_535, 65_536, 65_537, 1 << 20, (1 << 24) + 1]


def through(first: bytes, second: bytes, payload: bytes) -> int:
    crc = crc32c.crc32c(first + payload)
    return with_other_front(crc, crc32c.crc32c(first), crc32c.crc32c(second), len(payload))


@given(first=_fronts, second=_fronts, payload=st.binary(max_size=700))
def test_any_payload(first: bytes, second: bytes, payload: bytes) -> None:
    assert through(first, second, payload) == crc32c.crc32c(second + payload)


@pytest.mark.parametrize("length", _EDGES)
def test_each_place_of_a_length(length: int) -> None:
    payload = bytes(range(1, 252)) * (length // 251 + 1)
    first, second = b"\1" * 40, b"\xfe" * 40
    assert through(first, second, payload[:length]) == crc32c.crc32c(second + payload[:length])


@given(first=_fronts, second=_fronts, payload=st.binary(min_size=1, max_size=300), data=st.data())
def test_damage_stays_visible(first: bytes, second: bytes, payload: bytes, data: st.DataObject) -> None:
    crc = crc32c.crc32c(first + payload)
    hurt = bytearray(payload)
    hurt[data.draw(st.integers(0, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    moved = with_other_front(crc, crc32c.crc32c(first), crc32c.crc32c(second), len(payload))
    assert moved != crc32c.crc32c(second + bytes(hurt))
