"""The short way of an append beside the general one: same files, memory and answers, whatever comes."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.log import AppendRefused, Log, LogConfig
from broker.log.region import WORTH_LOCATING, locate
from broker.log.segment_list import SegmentList
from broker.log.segment_view import SegmentView
from protocol.records import Codec
from tests.support.batches import T0, batch, records_of
from tests.support.clock import VirtualClock

NUMBER = itertools.count()


class General(Log):
    """A log in which no batch is an ordinary one."""

    __slots__ = ()

    def append_ordinary(self, *_: Any, **__: Any) -> None:
        return None


def settled(log: Log) -> dict[str, Any]:
    """Everything that an append may change."""
    files = {path.name: path.read_bytes() for path in Path(log.directory).glob("*.log")}
    segments = [
        (
            each.base_offset, each.size, each.bytes_since_index, each.first_timestamp, each.max_timestamp,
            each.max_timestamp_offset, each.indexes_full, list(each.offset_index.offsets),
            list(each.offset_index.positions), bytes(each.time_index.entries),
        )
        for each in log.segments
    ]  # fmt: skip
    producers = sorted(log.producers.to_snapshot())
    window = {p.producer_id: list(p.batches) for p in log.producers}
    return {
        "files": files, "segments": segments, "producers": producers, "window": window,
        "end": log.end_offset, "unstable": log.producers.first_unstable, "epochs": log.epochs.entries(),
    }  # fmt: skip


def appended(log: Log, data: memoryview, epoch: int) -> tuple[Any, bytes]:
    """The outcome and what has become of the caller's buffer (which a refusal may leave as it likes)."""
    view = memoryview(bytearray(data))
    base = log.end_offset
    try:
        result = tuple(log.append(view, epoch))
        if not isinstance(log, General) and log.end_offset > base:
            log.keep_last(view, base, log.end_offset)
        return result, bytes(view)
    except AppendRefused as refusal:
        return (refusal.code, refusal.message, refusal.record_errors), b""


def readable(log: Log) -> list[bytes]:
    """What is found from each offset on."""
    offsets = range(log.start_offset, log.end_offset)
    return [b"".join(log.read_blocking(offset, 1 << 20).segments) for offset in offsets]


@st.composite
def batches(draw: st.DrawFn) -> memoryview:
    """Mostly good ones; the rest with a field or a byte that is wrong."""
    producer = draw(
        st.sampled_from([(-1, -1, -1)] * 3)
        | st.tuples(st.integers(1, 2), st.integers(0, 1), st.sampled_from([0, 1, 2, 3, 4, 6, 2**31 - 1]))
    )
    count = draw(st.integers(1, 3))
    times = draw(st.sampled_from([T0, T0, T0 + 1, T0 - 50, -1, T0 + 10_000, T0 + 4_000_000]))
    data = batch(
        [bytes(draw(st.sampled_from([1, 1, 40, 300, 900])))] * count,
        timestamps=[times] * count,
        codec=draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4])),
        producer=producer,
        transactional=producer[0] >= 0 and draw(st.booleans()),
        base_offset=draw(st.sampled_from([0] * 9 + [3])),
    )
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(data) - 1))
        data[at] ^= draw(st.integers(1, 255))
    return data


@given(
    steps=st.lists(
        batches()
        | st.sampled_from(["epoch", "settings", "roll"])
        | st.tuples(st.just("cut"), st.integers(0, 12))
        | st.tuples(st.just("later"), st.integers(1, 20_000)),
        min_size=1,
        max_size=14,
    ),
    settings=st.fixed_dictionaries(
        {},
        optional={
            "segment_bytes": st.sampled_from([700, 2500]),
            "segment_ms": st.sampled_from([40, 5000]),
            "index_interval_bytes": st.sampled_from([0, 300]),
            "segment_index_bytes": st.sampled_from([12, 40]),
            "max_message_bytes": st.sampled_from([200, 1500]),
            "message_timestamp_type": st.just("LogAppendTime"),
            "message_timestamp_after_max_ms": st.just(5000),
            "cleanup_policy": st.just(frozenset({"compact"})),
            "flush_messages": st.just(2),
        },
    ),
)
def test_the_short_way_does_what_the_general_one_does(
    scratch: Path, steps: list[Any], settings: dict[str, Any]
) -> None:
    directory, clock = scratch / f"ordinary-{next(NUMBER)}", VirtualClock()
    logs = []
    for kind in (Log, General):
        path = directory / kind.__name__ / "t-0"
        path.mkdir(parents=True)
        logs.append(kind.open(path, LogConfig(**settings), clock, clean=True))
    epoch = 0
    try:
        for step in steps:
            if step == "epoch":
                epoch += 1
            elif step == "settings":
                changed = LogConfig(**settings | {"max_message_bytes": 1000, "segment_bytes": 1500})
                for log in logs:
                    log.configure(changed)
            elif step == "roll":
                for log in logs:
                    log.roll()
            elif isinstance(step, tuple) and step[0] == "cut":
                for log in logs:
                    log.truncate_to(step[1])
            elif isinstance(step, tuple):
                clock.advance(step[1] / 1000)
            else:
                quick, general = (appended(log, step, epoch) for log in logs)
                assert quick == general
            assert settled(logs[0]) == settled(logs[1])
            assert readable(logs[0]) == readable(logs[1])
    finally:
        for log in logs:
            log.release()


OpenLog = Callable[..., Log]


def test_plain_batches_go_the_short_way(open_log: OpenLog) -> None:
    """Otherwise the comparison above compares nothing. The first batch of a segment goes the other way."""
    log = open_log()
    log.append(batch(2), 0)
    log.append(batch(1, producer=(7, 0, 0)), 0)
    assert log.append_ordinary(batch(3, codec=Codec.ZSTD), 0, T0) == (3, 6)
    assert log.append_ordinary(batch(1, producer=(7, 0, 1)), 0, T0) == (6, 7)
    assert log.append_ordinary(batch(1, producer=(7, 0, 2), transactional=True), 0, T0) == (7, 8)
    assert log.append_ordinary(batch(1, producer=(7, 0, 3), transactional=True), 0, T0) == (8, 9)
    assert log.append_ordinary(batch(1, producer=(7, 0, 4)), 0, T0) is None, "outside of its transaction"
    assert log.producers.first_unstable == 7
    assert log.high_watermark == 0, "where there are other replicas, they say what all have"
    assert log.append_ordinary(batch(1), 0, T0, sole=True) == (9, 10)
    assert log.high_watermark == 10


def test_the_last_batch_is_kept_until_it_is_cut_off(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another batch that ends at the same offset may come in its place."""
    log = open_log()
    log.append(batch([b"a"]), 0)
    last = memoryview(batch([b"b"]))
    log.append(last, 0)
    log.keep_last(last, 1, 2)
    with monkeypatch.context() as without_disk:
        without_disk.setattr(SegmentList, "read", lambda *_, **__: pytest.fail("it was kept"))
        assert log.read(1, 1 << 20).segments == [bytes(last)]
    assert log.read_blocking(1, 10, min_one=False).size == 0, "it is larger than what the reader takes"
    assert log.read_blocking(1, 1 << 20, max_offset=1).size == 0, "it may not be read yet"
    log.truncate_to(1)
    log.append(batch([b"c"]), 0)
    assert [record.value for record in records_of(log.read_blocking(1, 1 << 20).segments)] == [b"c"]


def test_a_kept_batch_is_not_looked_for_in_a_long_segment(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding out that it is not worth a region cost as much as reading it."""
    log = open_log()
    for _ in range(4):
        log.append(batch([bytes(WORTH_LOCATING // 3)]), 0)
    last = memoryview(batch([b"b"]))
    log.append(last, 0)
    log.keep_last(last, 4, 5)
    monkeypatch.setattr(SegmentView, "_bytes", lambda *_: pytest.fail("it was looked for"))
    assert locate(log, 4, 1 << 20, 5, True) is None
    assert log.read(4, 1 << 20).segments == [bytes(last)]


def test_a_log_at_rest_keeps_no_batch(open_log: OpenLog) -> None:
    log = open_log()
    last = memoryview(batch([b"a"]))
    log.append(last, 0)
    log.keep_last(last, 0, 1)
    log.release_idle()
    assert log._last is not None
    log.release_idle()
    assert log._last is None
    assert records_of(log.read_blocking(0, 1 << 20).segments)


def test_a_closed_log_takes_nothing(open_log: OpenLog) -> None:
    log = open_log()
    for _ in range(2):
        log.append(batch(1), 0)
    log.close()
    assert log.append_ordinary(batch(1), 0, T0) is None
    assert (Path(log.directory) / f"{0:020d}.log").stat().st_size == 2 * len(batch(1))


def test_a_disk_that_refuses_leaves_the_batch_for_the_general_way(
    open_log: OpenLog, monkeypatch: Any
) -> None:
    log = open_log()
    for _ in range(2):
        log.append(batch(1), 0)
    before = settled(log)

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    data = batch(1)
    with monkeypatch.context() as patched:
        patched.setattr("os.pwrite", full)
        assert log.append_ordinary(data, 0, T0) is None
    assert settled(log) == before
    assert log.append(data, 0).base_offset == 2, "the buffer is as the client sent it"
