"""What workers tell each other survives the way, and what nobody of them wrote is refused."""

import os
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.types import TopicPartition
from replicator.workers.messages import MemberState, Orders, UnreadableError, WorkerInfo
from replicator.workers.permit import Permit, now
from replicator.workers.report import Standing, WorkerReport, owners, reports

tps = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "ü-_"]), st.integers(0, 5000))
infos = st.builds(WorkerInfo, st.text(), st.integers(0, 2**31), st.text(), st.text(), st.text(), st.text())


@given(infos, st.integers(0), st.frozensets(tps), st.booleans(), st.dictionaries(tps, st.integers(1, 2**40)))
def test_what_a_member_says_arrives(info, epoch, held, everything, rates):
    said = MemberState(info, epoch, held, everything, rates, "print")
    assert MemberState.decode(said.encode()) == said


@given(st.integers(0), st.frozensets(tps), st.dictionaries(st.text(), infos))
def test_orders_arrive(epoch, partitions, members):
    orders = Orders(epoch, "leader", partitions, members)
    assert Orders.decode(orders.encode()) == orders


@given(st.binary() | st.binary().map(zlib.compress))
def test_other_bytes_are_refused(data):
    for message in (MemberState, Orders):
        with pytest.raises(UnreadableError):
            message.decode(data)
    with pytest.raises(ValueError, match="cannot be read"):
        WorkerReport.decode(data)


def test_words_of_a_newer_version_are_left_alone():
    packed = MemberState(WorkerInfo("w")).encode()
    newer = zlib.compress(
        zlib.decompress(packed).replace(b'{"info":{', b'{"later":1,"info":{"colour":"red",')
    )
    assert MemberState.decode(newer) == MemberState(WorkerInfo("w"))


def test_a_report_of_a_newer_version_can_be_read():
    """Versions stand side by side while all workers are replaced in turn."""
    standing = Standing("running", 10, 0, "raw", 1, "")
    report = WorkerReport("w", "1", partitions={TopicPartition("t", 0): standing})
    text = zlib.decompress(report.encode()).replace(b'{"worker":', b'{"later":1,"worker":', 1)
    assert WorkerReport.decode(zlib.compress(text.replace(b'1,""]', b'1,"",7]'))) == report


def test_a_process_is_known_to_be_dead_on_its_own_machine_only():
    mine = WorkerInfo.of_this_process()
    assert not mine.dead
    assert replace(mine, started="1").dead  # its number was given to another
    assert not replace(mine, started="1", machine="another").dead
    assert not replace(mine, pid=os.getppid(), started="").dead


def test_a_permit_ends_by_itself_before_its_time_is_over():
    permit = Permit()
    assert not permit.allows()
    permit.extend(now(), 60)
    assert permit.allows()
    permit.extend(now() - 60, 60)  # an old answer takes nothing away
    assert permit.allows()
    permit.withdraw()
    assert not permit.allows()
    permit.extend(now() - 9.5, 10)  # granted until in half a second, but clocks do not run alike
    assert not permit.allows()


def test_a_permit_that_was_withdrawn_is_given_by_later_answers_only():
    permit = Permit()
    before = now()
    permit.extend(before, 60)
    permit.replace(before, 5)
    assert permit.allows()
    permit.withdraw()
    permit.extend(before, 60)  # the answer to what was asked before somebody else came
    assert not permit.allows()
    permit.extend(now(), 60)
    assert permit.allows()


def test_of_two_workers_that_name_a_partition_the_newer_plan_counts():
    tp = TopicPartition("t", 0)
    standing = Standing("running", 10, 0, "raw", 1, "")
    late = 10**15
    old = WorkerReport("old", "1", epoch=4, at_ms=late, partitions={tp: standing})
    new = WorkerReport("new", "2", epoch=5, at_ms=late - 5, partitions={tp: standing})
    rows = {one.key.encode(): one.encode() for one in (new, old)} | {b"worker/x": b"?", b"control/x": b""}
    assert reports(rows) == [new, old]
    assert owners(reports(rows)) == {tp: new}
    assert owners([replace(new, silent=True), old]) == {tp: old}  # the new one is silent
