"""What is left after a crash: everything up to the first byte that is not a whole, sound batch."""

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.log import Log, LogConfig, Origin
from broker.log.files import OpenFile
from protocol.records import iter_headers
from tests.support.batches import T0, batch, marker, records_of
from tests.support.clock import VirtualClock

OpenLog = Callable[..., Log]
SETTINGS = {"segment_bytes": 3000, "index_interval_bytes": 300}


def fill(log: Log, count: int = 30) -> None:
    for i in range(count):
        log.append(
            batch([b"%d" % (3 * i + n) + bytes(40) for n in range(3)], timestamps=[T0 + i] * 3), i // 10
        )


def values(log: Log) -> list[int]:
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        data = log.read_blocking(offset, 10_000)
        found += [int((record.value or b"").rstrip(b"\0")) for record in records_of(data.segments)]
        offset = data.next_offset
    return found


def state(log: Log) -> tuple[object, ...]:
    """Everything that recovery has to bring back."""
    return (
        log.end_offset,
        log.epochs.entries(),
        sorted(log.producers.to_snapshot()),
        [list(zip(s.offset_index.offsets, s.offset_index.positions, strict=True)) for s in log.segments],
        [s.largest_timestamp for s in log.segments],
        log.offset_for_timestamp(T0 + 17),
        log.max_timestamp_offset(),
    )


def cut_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "cut" in record.getMessage()]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


def newest(directory: Path) -> Path:
    return max(directory.glob("*.log"))


@pytest.mark.parametrize("clean", [True, False])
def test_the_same_log_comes_back(open_log: OpenLog, clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(**SETTINGS)
    fill(log)
    log.append(batch(3, producer=(9, 1, 10)), 3)
    before = state(log)
    if clean:
        log.close()
    assert state(open_log(clean=clean, **SETTINGS)) == before
    assert cut_lines(caplog) == []


@pytest.mark.parametrize("settings", [SETTINGS, {}], ids=["many segments", "one"])
@pytest.mark.parametrize("point", [0, 3, 29, 50, 70, 101, 119, 120])
def test_the_same_log_comes_back_from_any_recovery_point(
    open_log: OpenLog, point: int, settings: dict[str, Any]
) -> None:
    """What is before it is not read again, and is known all the same."""
    log = open_log(**settings)
    for i in range(30):
        log.append(batch(2, producer=(9, 1, 2 * i), timestamps=[T0 + i] * 2), i // 10)
        log.append(batch(1, producer=(7, i, 0), transactional=True), i // 10)
        if i % 3 < 2:
            log.append(marker(7, i, commit=i % 3 == 0), i // 10, Origin.COORDINATOR)
    log.high_watermark = log.end_offset
    aborted, stable = log.aborted_transactions(0, log.end_offset), log.last_stable_offset
    assert len(aborted) > 5
    before = state(log)
    again = open_log(recovery_point=point, **settings)
    again.high_watermark = again.end_offset
    assert state(again) == before
    assert (again.aborted_transactions(0, again.end_offset), again.last_stable_offset) == (aborted, stable)


def test_every_place_where_the_last_batch_may_be_torn(
    open_log: OpenLog, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(**SETTINGS)
    fill(log, 25)
    path = newest(directory)
    whole = path.read_bytes()
    size = len(whole) - [h.size for _, h in iter_headers(whole)][-1]
    for end in range(size, len(whole)):
        shutil.copytree(directory, directory.with_name("copy-0"))
        os.truncate(directory.with_name("copy-0") / path.name, end)
        caplog.clear()
        again = Log.open(directory.with_name("copy-0"), LogConfig(**SETTINGS), VirtualClock())
        assert (again.end_offset, values(again)) == (72, list(range(72)))
        assert (directory.with_name("copy-0") / path.name).stat().st_size == size
        if end > size:
            (line,) = cut_lines(caplog)
            assert f"copy-0: cut {end - size} bytes" in line
            assert "from offset 72 on" in line
        again.append(batch([b"72"]), 2)
        assert values(again)[-1] == 72
        again.release()
        shutil.rmtree(directory.with_name("copy-0"))


def test_every_flipped_byte_of_the_last_batches_is_found(open_log: OpenLog, directory: Path) -> None:
    log = open_log(**SETTINGS)
    fill(log, 25)
    path = newest(directory)
    whole = path.read_bytes()
    starts = [pos for pos, _ in iter_headers(whole)][-2:]
    copy = directory.with_name("copy-0")
    for at in range(starts[0], len(whole)):
        if at in range(starts[0] + 12, starts[0] + 16) or at in range(starts[1] + 12, starts[1] + 16):
            continue  # the leader epoch is not covered by the checksum; brokers write it
        shutil.copytree(directory, copy)
        with open(copy / path.name, "r+b") as file:
            file.seek(at)
            file.write(bytes([whole[at] ^ 0x40]))
        again = Log.open(copy, LogConfig(**SETTINGS), VirtualClock())
        if any(start + 4 <= at < start + 8 for start in starts):
            # Not covered by the checksum either, and after compaction offsets may have holes: a higher base
            # offset is taken for true, the batches below it stay as they are.
            assert again.end_offset >= 69
        else:
            assert again.end_offset == (69 if at < starts[1] else 72)
            assert values(again) == list(range(again.end_offset))
        again.release()
        shutil.rmtree(copy)


def test_a_bad_batch_takes_everything_behind_it_along(
    open_log: OpenLog, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(**SETTINGS)
    fill(log)
    second = sorted(directory.glob("*.log"))[1]
    with open(second, "r+b") as file:
        file.seek(400)
        file.write(b"damage")
    again = open_log(**SETTINGS)
    (line,) = cut_lines(caplog)
    assert "segments behind it" in line
    assert values(again) == list(range(again.end_offset))
    assert again.end_offset == again.segments.active.base_offset + 3
    assert len(list(directory.glob("*.log"))) == 2
    assert again.epochs.entries()[-1][1] < again.end_offset


def test_only_the_tail_above_the_recovery_point_is_read(
    open_log: OpenLog, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(**SETTINGS)
    fill(log, 300)
    log.flush()
    point = log.recovery_point
    assert point == 900
    fill_more = batch([bytes(40)] * 3)
    log.append(fill_more, 2)
    size = log.size
    read: list[int] = []
    whole = OpenFile.read

    def counting(self: OpenFile, position: int, wanted: int) -> bytes:
        data = whole(self, position, wanted)
        read.append(len(data))
        return data

    monkeypatch.setattr(OpenFile, "read", counting)
    again = open_log(recovery_point=point, **SETTINGS)
    assert again.end_offset == 903
    assert sum(read) < size / 10


def test_damage_below_the_recovery_point_is_not_looked_for(open_log: OpenLog, directory: Path) -> None:
    log = open_log(**SETTINGS)
    fill(log)
    log.flush()
    with open(sorted(directory.glob("*.log"))[0], "r+b") as file:
        file.seek(300)
        file.write(b"damage")
    assert open_log(recovery_point=log.recovery_point, **SETTINGS).end_offset == 90


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", ["index", "timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "odd size", "zeros", "another log's"])
def test_indexes_are_made_again(
    open_log: OpenLog, directory: Path, clean: bool, kind: str, damage: str
) -> None:
    log = open_log(**SETTINGS)
    fill(log)
    before = state(log)
    log.close()
    for path in directory.glob(f"*.{kind}"):
        if damage == "missing":
            path.unlink()
        elif damage == "another log's":
            path.write_bytes(
                bytes.fromhex("0000000200000041" if kind == "index" else "0000000000000001 00000000")
            )
        else:
            data = {"empty": b"", "garbage": bytes(range(255, 15, -1)), "odd size": path.read_bytes() + b"x"}
            path.write_bytes(data.get(damage, bytes(2400)))
    again = open_log(clean=clean, recovery_point=60, **SETTINGS)
    assert values(again) == list(range(90))
    for offset in range(90):
        found = records_of(again.read_blocking(offset, 1).segments)
        assert found[0].offset <= offset <= found[-1].offset
    assert again.end_offset == before[0]


@pytest.mark.parametrize("damage", ["missing", "garbage", "too new"])
def test_producers_are_known_without_their_snapshot(open_log: OpenLog, directory: Path, damage: str) -> None:
    log = open_log(**SETTINGS)
    for i in range(40):
        log.append(batch([bytes(40)], producer=(i % 3, 0, i // 3)), 0)
    before = log.producers.to_snapshot()
    log.close()
    assert list(directory.glob("*.snapshot"))
    for path in directory.glob("*.snapshot"):
        if damage == "missing":
            path.unlink()
        elif damage == "garbage":
            path.write_bytes(b"garbage" * 9)
        else:
            path.rename(path.with_name(f"{int(path.stem) + 1000:020d}.snapshot"))
    again = open_log(clean=True, **SETTINGS)
    assert sorted(again.producers.to_snapshot()) == sorted(before)
    assert again.append(batch(1, producer=(0, 0, 13)), 0).duplicate


@pytest.mark.parametrize("damage", [None, "nonsense\n", "0\n7\n0 0\n"])
def test_leader_epochs_are_taken_from_the_batches(
    open_log: OpenLog, directory: Path, damage: str | None
) -> None:
    log = open_log(**SETTINGS)
    fill(log)
    log.close()
    path = directory / "leader-epoch-checkpoint"
    path.unlink()
    if damage:
        path.write_text(damage)
    again = open_log(clean=True, **SETTINGS)
    assert again.epochs.entries() == [(0, 0), (1, 30), (2, 60)]
    assert path.read_text() == "0\n3\n0 0\n1 30\n2 60\n"


@pytest.mark.parametrize("point", [0, 15, 45, 60, 75, 90])
def test_an_epoch_at_the_recovery_point_began_before_it(open_log: OpenLog, point: int) -> None:
    """Followers ask where the one before it ended (KIP-101): further up, they would keep what is not here."""
    log = open_log()
    fill(log)
    assert log.epochs.entries() == [(0, 0), (1, 30), (2, 60)]
    again = open_log(recovery_point=point)
    assert again.epochs.entries() == [(0, 0), (1, 30), (2, 60)]


def test_aborted_transactions_are_found_again(open_log: OpenLog, directory: Path) -> None:
    log = open_log(**SETTINGS)
    for i in range(4):
        log.append(batch(2, producer=(7, i, 0), transactional=True), 0)
        log.append(batch([bytes(900)]), 0)
        log.append(marker(7, i, commit=i % 2 == 0), 0, Origin.COORDINATOR)
    log.append(batch(2, producer=(8, 0, 0), transactional=True), 0)
    before = log.aborted_transactions(0, log.end_offset)
    assert len(before) == 2
    for path in directory.glob("*.txnindex"):
        path.write_bytes(path.read_bytes()[:-1] + b"xx")
    again = open_log(**SETTINGS)
    again.high_watermark = again.end_offset
    assert again.aborted_transactions(0, again.end_offset) == before
    assert again.last_stable_offset == again.end_offset - 2


def test_leftovers_and_strangers(open_log: OpenLog, directory: Path) -> None:
    log = open_log(**SETTINGS)
    fill(log, 5)
    log.close()
    leftovers = [
        "00000000000000000000.log.deleted", "00000000000000000007.index", "00000000000000000007.timeindex",
        "00000000000000000007.txnindex", "00000000000000000000.log.cleaned", "leader-epoch-checkpoint.tmp",
    ]  # fmt: skip
    strangers = ["notes.txt", "123.log", "core"]
    for name in leftovers + strangers:
        (directory / name).write_bytes(b"x")
    assert values(open_log(clean=True, **SETTINGS)) == list(range(15))
    names = os.listdir(directory)
    assert not set(leftovers) & set(names)
    assert set(strangers) <= set(names)


def test_a_cleanly_closed_log_that_is_torn_all_the_same(
    open_log: OpenLog, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(**SETTINGS)
    fill(log, 25)
    log.close()
    os.truncate(newest(directory), newest(directory).stat().st_size - 5)
    again = open_log(clean=True, **SETTINGS)
    assert values(again) == list(range(72))
    assert len(cut_lines(caplog)) == 1


def test_a_log_that_lost_even_its_start_begins_anew_there(
    open_log: OpenLog, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(**SETTINGS)
    fill(log, 3)
    assert open_log(start_offset=100, **SETTINGS).end_offset == 9  # nothing else says so: not believed
    again = open_log(start_offset=100, high_watermark=100, **SETTINGS)
    assert (again.start_offset, again.end_offset) == (100, 100)
    assert [path.name for path in directory.glob("*.log")] == [f"{100:020d}.log"]
    again.append(batch(1), 5)
    assert again.end_offset == 101
    assert again.epochs.entries() == [(5, 100)]


def test_an_empty_last_segment(open_log: OpenLog) -> None:
    log = open_log(**SETTINGS)
    fill(log, 4)
    log.roll()
    for clean in (False, True):
        again = open_log(clean=clean, **SETTINGS)
        assert (again.end_offset, len(again.segments)) == (12, 2)
        again.close()


def test_the_truncated_rest_is_consistent(open_log: OpenLog) -> None:
    """What a follower does when its leader has less."""
    log = open_log(**SETTINGS)
    fill(log)
    for i in range(5):
        log.append(batch(1, producer=(4, 0, i)), 3)
    log.high_watermark = 80
    log.truncate_to(92)
    assert log.end_offset == 92
    assert log.producers.to_snapshot()[0].last_sequence == 1
    log.append(batch(1, producer=(4, 0, 2)), 4)
    assert log.epochs.entries() == [(0, 0), (1, 30), (2, 60), (3, 90), (4, 92)]
    log.truncate_to(40)
    assert (log.end_offset, log.high_watermark) == (39, 39), "batches are not cut"
    assert values(log) == list(range(39))
    assert log.epochs.entries() == [(0, 0), (1, 30)]
    log.append(batch([b"39"]), 5)
    log.close()
    again = open_log(clean=True, **SETTINGS)
    assert values(again) == list(range(40))
    again.truncate_to(0)
    assert (again.start_offset, again.end_offset, again.size) == (0, 0, 0)
    again.truncate_fully(500)
    assert (again.start_offset, again.end_offset) == (500, 500)
    again.append(batch(1), 6)
    assert again.end_offset == 501


@pytest.fixture(autouse=True)
def _log_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "isthmus.broker.log")
