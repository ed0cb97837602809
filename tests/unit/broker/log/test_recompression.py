"""Topics that want a codec of their own get it, whatever was sent; records, offsets and sequences stay."""

from collections.abc import Callable

import pytest

from broker.log import AppendRefused, Log
from protocol.errors import ErrorCode
from protocol.records import Codec, check_crc, iter_headers
from tests.support.batches import batch, records_of

OpenLog = Callable[..., Log]
TYPES = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.mark.parametrize("wanted", TYPES)
def test_every_codec_becomes_the_topics(open_log: OpenLog, wanted: str) -> None:
    log = open_log(compression_type=wanted)
    sent = []
    for n, codec in enumerate(Codec):
        values = [b"%d-%d" % (codec, i) + bytes(300) for i in range(5)]
        sent += values
        log.append(batch(values, codec=codec, producer=(7, 0, 5 * n)), 3)
    data = log.read_blocking(0, 1 << 20)
    (stored,) = data.segments
    headers = list(iter_headers(stored))
    assert {header.codec for _, header in headers} == {TYPES[wanted]}
    assert all(check_crc(stored, pos, header) for pos, header in headers)
    assert [(h.base_offset, h.base_sequence, h.leader_epoch) for _, h in headers] == [
        (5 * n, 5 * n, 3) for n in range(5)
    ]
    assert [record.value for record in records_of(data.segments)] == sent
    assert log.append(batch(sent[-5:], codec=Codec.GZIP, producer=(7, 0, 20)), 3).duplicate


def test_the_producers_choice_stays(open_log: OpenLog) -> None:
    log = open_log()
    for codec in Codec:
        log.append(batch(3, codec=codec), 0)
    (stored,) = log.read_blocking(0, 1 << 20).segments
    assert [header.codec for _, header in iter_headers(stored)] == list(Codec)


def test_too_large_without_compression(open_log: OpenLog) -> None:
    log = open_log(compression_type="uncompressed", max_message_bytes=2000)
    with pytest.raises(AppendRefused) as refused:
        log.append(batch([bytes(5000)], codec=Codec.ZSTD), 0)
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert log.end_offset == 0
