"""What a mirror's log takes, and what is left of its source's producers once it is written to."""

from collections.abc import Callable

import pytest

from broker.log import AppendRefused, Log, LogConfig, Origin
from broker.log.markers import producers_end_batch
from broker.log.mirrored import check_mirrored
from protocol.errors import ErrorCode
from tests.support.batches import T0, batch

OpenLog = Callable[..., Log]
MIRROR = "east->west/cluster/topic"


def ended(log: Log) -> None:
    log.append(memoryview(producers_end_batch(T0)), 100_000, Origin.COORDINATOR)


def test_clients_may_not_write_to_a_mirror(open_log: OpenLog) -> None:
    log = open_log(isthmus_mirror_source=MIRROR)
    for data in (batch(2), batch(2, producer=(4, 0, 0)), batch(2, transactional=True, producer=(4, 0, 0))):
        with pytest.raises(AppendRefused, match="isthmus mirrors promote") as caught:
            log.append(data, 0)
        assert caught.value.code is ErrorCode.POLICY_VIOLATION
    log.append(batch(2, base_offset=7, leader_epoch=3), 9, Origin.REPLICATION)
    assert (log.end_offset, log.epochs.latest) == (9, 3)


def test_a_mirror_keeps_what_is_old_until_its_source_lets_go(open_log: OpenLog) -> None:
    limits = {"segment_bytes": 200, "retention_ms": 1, "retention_bytes": 1}
    log = open_log(**limits, isthmus_mirror_source=MIRROR)
    for at in range(5):
        log.append(batch(1, base_offset=at, leader_epoch=0), 0, Origin.REPLICATION)
        log.high_watermark = log.end_offset
    assert log.enforce_retention(T0 + 10_000_000) == 0
    log.delete_before(3)
    assert log.enforce_retention(T0) > 0
    assert log.start_offset == 3
    log.configure(LogConfig(**limits))
    log.enforce_retention(T0 + 10_000_000)
    assert log.start_offset == 5


@pytest.mark.parametrize("how", ["running", "restarted", "killed"])
def test_another_clusters_producers_end_with_the_mirror(open_log: OpenLog, how: str) -> None:
    log = open_log(isthmus_mirror_source=MIRROR)
    log.append(batch(3, producer=(7, 0, 0), leader_epoch=2), 9, Origin.REPLICATION)
    assert log.producers.get(7) is not None
    ended(log)
    log.configure(LogConfig())
    if how != "running":
        if how == "restarted":
            log.close()
        log = open_log(clean=how == "restarted")
    assert log.producers.get(7) is None
    stored = log.append(batch(3, producer=(7, 0, 0)), 100_000)
    assert not stored.duplicate
    assert stored.base_offset == 4
    again = log.append(batch(3, producer=(7, 0, 0)), 100_000)
    assert again.duplicate


def test_a_log_cut_back_into_the_mirror_knows_them_again(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(3, producer=(7, 0, 0), leader_epoch=2), 9, Origin.REPLICATION)
    ended(log)
    log.truncate_to(3)
    assert log.producers.get(7) is not None


@pytest.mark.parametrize("how", ["running", "restarted", "killed"])
def test_what_nobody_will_end_is_not_open_after_them(open_log: OpenLog, how: str) -> None:
    """The other side had let go of all its records before it was written to, so it wrote no marker for it."""
    log = open_log(isthmus_mirror_source=MIRROR)
    log.append(batch(3, producer=(7, 0, 0), transactional=True, leader_epoch=2), 9, Origin.REPLICATION)
    log.high_watermark = 3
    log.delete_before(3)
    assert [one.producer_id for one in log.producers.open_transactions()] == [7]
    ended(log)
    log.append(batch(2, base_offset=4, leader_epoch=100_001), 100_002, Origin.REPLICATION)
    if how != "running":
        if how == "restarted":
            log.close()
        log = open_log(clean=how == "restarted", isthmus_mirror_source=MIRROR)
    log.high_watermark = 6
    assert log.producers.open_transactions() == []
    assert log.last_stable_offset == 6


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (batch(1, base_offset=9, leader_epoch=5), ErrorCode.OFFSET_OUT_OF_RANGE),
        (batch(1, base_offset=10, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (batch(1, base_offset=10, leader_epoch=100), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (memoryview(b""), ErrorCode.INVALID_RECORD),
    ],
)
def test_batches_that_do_not_go_on_where_the_mirror_ends(data: memoryview, code: ErrorCode) -> None:
    with pytest.raises(AppendRefused) as caught:
        check_mirrored("t-0", data, log_end=10, last_epoch=5, leader_epoch=100)
    assert caught.value.code is code


def test_a_hole_before_the_first_batch_is_none_of_the_mirrors_business() -> None:
    data = batch(1, base_offset=12, leader_epoch=99)
    assert check_mirrored("t-0", data, log_end=10, last_epoch=5, leader_epoch=100) == 12
