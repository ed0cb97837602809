"""Codecs against independent writers, damaged data and bombs."""

import contextlib
import gzip
import os
import struct
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import DecodeError
from protocol.records import Codec, compress, decompress
from protocol.records.zstd import bound

PACKED = [codec for codec in Codec if codec]


@pytest.mark.parametrize("codec", Codec)
@given(data=st.binary(max_size=5000) | st.binary(max_size=50).map(lambda part: part * 4000))
def test_round_trip(codec, data):
    assert decompress(codec, compress(codec, data)) == data
    assert decompress(codec, memoryview(bytearray(compress(codec, memoryview(data))))) == data


@pytest.mark.parametrize("codec", PACKED)
def test_more_than_one_block(codec):
    data = os.urandom(300_000) + bytes(300_000)
    packed = compress(codec, data)
    assert decompress(codec, packed) == data
    assert decompress(codec, packed, limit=len(data)) == data
    with pytest.raises(DecodeError, match="limit"):
        decompress(codec, packed, limit=len(data) - 1)


@pytest.mark.parametrize("codec", PACKED)
@given(data=st.binary(min_size=1, max_size=300), cut=st.data())
def test_truncated_data_is_refused_or_short(codec, data, cut):
    packed = compress(codec, data)
    end = cut.draw(st.integers(0, len(packed) - 1))
    with contextlib.suppress(DecodeError):
        assert len(decompress(codec, packed[:end])) < len(data)  # xerial streams have no end mark


@pytest.mark.parametrize("codec", PACKED)
@given(data=st.binary(max_size=300), damage=st.data())
def test_damage_raises_nothing_but_decode_errors(codec, data, damage):
    packed = bytearray(compress(codec, data))
    for _ in range(damage.draw(st.integers(1, 3))):
        packed[damage.draw(st.integers(0, len(packed) - 1))] = damage.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError):
        decompress(codec, packed, limit=1 << 20)


def bombs() -> dict[str, tuple[Codec, bytes]]:
    zeros = bytes(1 << 24)
    block = cramjam.snappy.compress_raw(zeros)
    xerial = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    return {
        "gzip": (Codec.GZIP, gzip.compress(zeros)),
        "gzip members": (Codec.GZIP, gzip.compress(bytes(1 << 20)) * 16),
        "snappy": (Codec.SNAPPY, bytes(block)),
        "snappy claim": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f\0\0"),
        "xerial": (Codec.SNAPPY, xerial + struct.pack(">i", len(block)) + bytes(block)),
        "xerial claim": (Codec.SNAPPY, xerial + struct.pack(">i", 0x7FFF_FFFF) + b"\0" * 100),
        "lz4": (Codec.LZ4, lz4.frame.compress(zeros)),
        "lz4 claim": (Codec.LZ4, lz4.frame.compress(zeros, store_size=True)),
        "zstd": (Codec.ZSTD, bytes(cramjam.zstd.compress(zeros))),
        "zstd frames": (Codec.ZSTD, bytes(cramjam.zstd.compress(bytes(1 << 20))) * 16),
    }


@pytest.mark.parametrize("name", bombs().keys())
def test_bombs_are_refused(name):
    codec, packed = bombs()[name]
    with pytest.raises(DecodeError):
        decompress(codec, packed, limit=1 << 20)


def test_bombs_take_no_more_memory_than_the_limit():
    """In a process of its own, where all memory that libraries take shows in the peak."""
    script = """
        import gzip, resource, cramjam, lz4.frame
        from protocol.errors import DecodeError
        from protocol.records import Codec, decompress

        size = 1 << 20  # compressed bytes of each bomb, all far above any one-shot bound
        bombs = [
            (Codec.GZIP, gzip.compress(bytes(1 << 20), 1) * 220),
            (Codec.LZ4, lz4.frame.compress(bytes(1 << 26))),
            (Codec.ZSTD, bytes(cramjam.zstd.compress(bytes(1 << 26))) * 10),
            (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(1 << 26)))),
        ]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for codec, packed in bombs:
            try:
                decompress(codec, packed, limit=8 << 20)
            except DecodeError:
                continue
            raise SystemExit(f"{codec!r} was not refused")
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert int(done.stdout) < 24 * 1024  # KiB


def test_zstd_bound_is_one():
    for data in (b"", b"x", os.urandom(200_000), bytes(3_000_000), b"abc" * 100_000):
        for level in (1, 3, 9):
            packed = bytes(cramjam.zstd.compress(data, level))
            assert bound(memoryview(packed)) >= len(data)
            assert bound(memoryview(packed * 2)) >= 2 * len(data)
    skippable = b"\x5a\x2a\x4d\x18" + struct.pack("<I", 5) + b"hello"
    packed = bytes(cramjam.zstd.compress(b"y" * 1000))
    assert decompress(Codec.ZSTD, skippable + packed) == b"y" * 1000
    assert bound(memoryview(skippable + packed)) >= 1000


def test_zstd_without_a_named_size_and_of_several_frames():
    """As streams of Java write it."""
    nameless = zstandard.ZstdCompressor(write_content_size=False)
    for data in (b"", b"x", b"abc" * 100_000, os.urandom(300_000)):
        packed = nameless.compress(data)
        assert decompress(Codec.ZSTD, packed) == data
        assert decompress(Codec.ZSTD, packed * 3) == data * 3
        assert decompress(Codec.ZSTD, packed + compress(Codec.ZSTD, data)) == data * 2
        if data:
            with pytest.raises(DecodeError):
                decompress(Codec.ZSTD, packed, limit=len(data) - 1)


def test_zstd_in_many_threads_at_once():
    """Each thread has a context of its own: one is not for two calls at a time."""
    data = [os.urandom(1000) * 300 for _ in range(8)]

    def round_trips(number: int) -> bool:
        return all(
            decompress(Codec.ZSTD, compress(Codec.ZSTD, data[number])) == data[number] for _ in range(50)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(round_trips, range(8)))


def test_plain_snappy_and_joined_xerial_streams_are_read():
    data = b"where do raw snappy blocks come from? librdkafka." * 50
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    assert decompress(Codec.SNAPPY, bytes(compress(Codec.SNAPPY, data)) * 2) == data * 2
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"")) == b""


def test_lz4_frames_are_what_java_reads():
    """KIP-57: version 1, independent blocks; checksum flags and sizes are not set."""
    packed = compress(Codec.LZ4, b"a" * 100_000)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] == 0b0110_0000


def test_several_gzip_members_are_read():
    assert decompress(Codec.GZIP, gzip.compress(b"ab") + gzip.compress(b"cd")) == b"abcd"
    assert decompress(Codec.GZIP, gzip.compress(b"ab") + gzip.compress(b"cd"), limit=100) == b"abcd"


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec):
    with pytest.raises(DecodeError, match="unknown"):
        decompress(codec, b"")
    with pytest.raises(ValueError, match="unknown"):
        compress(codec, b"")
