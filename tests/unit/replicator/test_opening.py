"""Matching a target's tail: holes of retention are gaps, and an empty answer is not the end (I7)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry

from protocol.client import EARLIEST, LATEST, ClientError
from protocol.client.log_calls import Fetched
from protocol.client.metadata import Leader
from protocol.client.mirror_calls import EpochEnd
from protocol.errors import ProtocolError
from protocol.records.building import build_batch
from protocol.records.header import iter_headers
from protocol.records.record import Record
from protocol.types import TopicPartition
from replicator import target_tails
from replicator.entry_rows import Entry
from replicator.metrics import LinkMetrics
from replicator.opening import Opener
from replicator.target_history import written_of
from transfer.endpoint import Chunk
from transfer.epochs import Epochs
from transfer.ledger import NOT_TOLD, Copied, Lineage, PartitionLedger, ProducerState, book_into
from transfer.offset_map import OffsetMap, Run
from transfer.rewrite import plan, seal

SOURCE = Lineage("c1", "s1", "orders", 0)
TARGET = Lineage("c2", "t1", "east.orders", 0)
SIDES = {"source": SOURCE, "target": TARGET}


@dataclass
class Listed:
    offset: int


@dataclass
class Side:
    """One partition of a cluster; the first `empty` fetches bring nothing."""

    data: bytes
    first: int
    end: int
    empty: int = 0
    asked: list[int] = field(default_factory=list)

    async def list_offsets(self, at: dict[TopicPartition, int], **_: object) -> object:
        return {tp: Listed({EARLIEST: self.first, LATEST: self.end}[which]) for tp, which in at.items()}

    async def offset(self, tp: TopicPartition, which: int, **_: object) -> object:
        return (await self.list_offsets({tp: which}))[tp]  # type: ignore[index]

    async def leader(self, tp: TopicPartition) -> Leader:
        return Leader(1, 0)

    async def fetch(self, tp: TopicPartition, offset: int, **_: object) -> Fetched:
        self.asked.append(offset)
        assert self.first <= offset < self.end, "out of range"
        view = memoryview(self.data)
        if self.empty:
            self.empty -= 1
            return Fetched(tp, view[:0], self.end, self.end, self.first)
        for pos, header in iter_headers(view):
            if header.last_offset >= offset:
                return Fetched(tp, view[pos : pos + header.size], self.end, self.end, self.first)
        return Fetched(tp, view[:0], self.end, self.end, self.first)


def clusters(batches: int, *, source_first: int, at_target: int) -> tuple[Side, Side]:
    """A source with `batches` of 3 records, and a target that has the first `at_target` of them."""
    whole = [
        build_batch([Record(0, 5, b"k", b"%d" % (at * 3 + i)) for i in range(3)], base_offset=at * 3)
        for at in range(batches)
    ]
    outs, _ = plan(Chunk(TopicPartition("orders", 0), memoryview(b"".join(whole)), 0, batches * 3))
    copied = bytearray()
    for number, out in enumerate(outs[:at_target]):
        batch = bytearray(b"".join(seal(out, 8, 0, number)))
        batch[:8] = (number * 3).to_bytes(8, "big")
        copied += batch
    kept = b"".join(batch for at, batch in enumerate(whole) if at * 3 >= source_first)
    return Side(kept, source_first, batches * 3), Side(bytes(copied), 0, at_target * 3)


def opener(source: Side, target: Side) -> Opener:
    return Opener(source, target, LinkMetrics("east->west", CollectorRegistry()))  # type: ignore[arg-type]


def stored() -> Entry:
    return Entry(PartitionLedger(SOURCE, TARGET, OffsetMap(0, 0)))


async def test_a_hole_of_retention_before_a_match_is_a_gap() -> None:
    source, target = clusters(10, source_first=6, at_target=4)
    beginning = await opener(source, target).open(stored(), SOURCE, TARGET, start_at=0)
    ledger = beginning.entry.ledger
    assert [(gap.start, gap.end) for gap in ledger.gaps] == [(0, 6)]
    assert beginning.gaps == ledger.gaps, "who opens counts them"
    assert ledger.next_source_offset == 12
    assert ledger.records == 6


async def test_no_hole_no_gap() -> None:
    source, target = clusters(10, source_first=0, at_target=4)
    beginning = await opener(source, target).open(stored(), SOURCE, TARGET, start_at=0)
    assert beginning.gaps == []
    assert beginning.entry.ledger.next_source_offset == 12


async def test_a_tail_is_recognised_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_tails, "_WINDOW", 1)
    source, target = clusters(10, source_first=0, at_target=7)
    ledger = (await opener(source, target).open(stored(), SOURCE, TARGET, start_at=0)).entry.ledger
    assert (ledger.next_source_offset, ledger.records, len(ledger.runs)) == (21, 21, 1)


async def test_a_tail_is_followed_as_far_as_it_is_the_links_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it is; a limit has what others wrote."""
    source, target = clusters(10, source_first=0, at_target=7)
    size = len(target.data) // 7
    monkeypatch.setattr(target_tails, "_WINDOW", 1)
    monkeypatch.setattr(target_tails, "_LONGEST", 3 * size)
    ledger = (await opener(source, target).open(stored(), SOURCE, TARGET, start_at=0)).entry.ledger
    assert ledger.next_source_offset == 21
    others = b"".join(build_batch([Record(0, 9, b"f", b"f" * 9)] * 3, base_offset=at * 3) for at in range(7))
    source, target = clusters(10, source_first=0, at_target=7)
    target.data = others
    await opener(source, target).open(stored(), SOURCE, TARGET, start_at=0)
    assert 0 < max(target.asked) < 18


async def test_a_tail_is_not_read_exactly_once_where_the_source_has_nothing_more() -> None:
    source, _ = clusters(2, source_first=0, at_target=0)
    longer, target = clusters(7, source_first=0, at_target=7)
    entry = Entry(PartitionLedger(SOURCE, TARGET, OffsetMap(6, 6)), once=True)
    await opener(source, target).open(entry, SOURCE, TARGET, start_at=0)
    assert not target.asked
    ledger = (await opener(longer, target).open(entry, SOURCE, TARGET, start_at=0)).entry.ledger
    assert ledger.next_source_offset == 21, "it has more now"


@pytest.mark.parametrize("side", ["source", "target"])
async def test_an_empty_answer_is_not_the_end(side: str) -> None:
    source, target = clusters(10, source_first=0, at_target=4)
    (source if side == "source" else target).empty = 3
    beginning = await opener(source, target).open(stored(), SOURCE, TARGET, start_at=0)
    assert beginning.entry.ledger.records == 12, "all that is there is recognised"


@pytest.mark.parametrize("side", ["source", "target"])
async def test_a_cluster_that_never_answers_in_full_leaves_the_progress_alone(side: str) -> None:
    source, target = clusters(10, source_first=0, at_target=4)
    (source if side == "source" else target).empty = 10_000
    entry = stored()
    with pytest.raises(ProtocolError, match="no batches at offset 0"):
        await opener(source, target).open(entry, SOURCE, TARGET, start_at=0)
    assert entry.ledger.records == 0
    assert entry.ledger.gaps == []


async def test_a_target_whose_own_retention_passed_is_matched_from_its_start_on() -> None:
    source, target = clusters(10, source_first=0, at_target=4)
    target.first = 3
    target.data = target.data[len(target.data) // 4 :]
    beginning = await opener(source, target).open(stored(), SOURCE, TARGET, start_at=0)
    assert target.asked[0] == 3
    assert beginning.entry.ledger.records == 0, (
        "its first batch is not the source's: copied again, nothing lost"
    )


def with_producer(next_sequence: int) -> Entry:
    entry = stored()
    entry.producer = ProducerState(8, 0, next_sequence)
    return entry


@pytest.mark.parametrize(
    ("gone", "source_first", "gaps"),
    [
        pytest.param([], 0, [], id="all recognised"),
        pytest.param([0, 1], 0, [], id="compacted away at the source"),
        pytest.param([0, 1, 2, 3], 0, [], id="none left"),
        pytest.param([0, 1], 6, [(0, 6)], id="retention"),
        pytest.param([0, 1, 2, 3], 12, [(0, 12)], id="retention took all"),
    ],
)
async def test_what_cannot_be_recognised_may_have_used_up_sequence_numbers(
    gone: list[int], source_first: int, gaps: list[tuple[int, int]]
) -> None:
    source, target = clusters(10, source_first=0, at_target=4)
    batches = [source.data[pos : pos + header.size] for pos, header in iter_headers(memoryview(source.data))]
    source.data = b"".join(batch for at, batch in enumerate(batches) if at not in gone)
    source.first = source_first
    beginning = await opener(source, target).open(with_producer(0), SOURCE, TARGET, start_at=0)
    entry = beginning.entry
    assert [(gap.start, gap.end) for gap in entry.ledger.gaps] == gaps
    assert all(gap.reason.endswith("perhaps copied before") for gap in entry.ledger.gaps)
    assert entry.ledger.records == 3 * (4 - len(gone))
    assert entry.producer == (None if gone else ProducerState(8, 0, 12))


_NOT_KNOWN = EpochEnd(-1, -1)


@dataclass
class Led(Side):
    """A side whose leader is of an epoch; `ended` is what it says of any other."""

    epoch: int = 0
    ended: EpochEnd = _NOT_KNOWN
    questions: list[tuple[int, int]] = field(default_factory=list)

    async def leader(self, tp: TopicPartition) -> Leader:
        return Leader(1, self.epoch)

    async def epoch_ends_at(
        self, node: int, wanted: dict[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, EpochEnd]:
        self.questions += wanted.values()
        return dict.fromkeys(wanted, self.ended)


def lost_and_filled(epoch: int, ended: EpochEnd) -> tuple[Side, Led]:
    """The target has the first two batches of four, and others' records where the last two were."""
    source, target = clusters(4, source_first=0, at_target=2)
    others = [build_batch([Record(0, 5, b"k", b"other")] * 3, base_offset=at) for at in (6, 9)]
    return source, Led(target.data + b"".join(others), 0, 12, epoch=epoch, ended=ended)


def copied_whole(source: Lineage, target: Lineage) -> Entry:
    ledger = PartitionLedger(source, target, OffsetMap(0, 0))
    ledger.add(Copied((Run(0, 0, 12),), 12, 12, 0, ()))
    return Entry(ledger, at_target=Epochs([(3, 0)]))


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("when", ["for the first time", "not now"])
async def test_a_topic_whose_id_is_told_only_now_and_then_is_asked_for_what_it_has(
    side: str, when: str
) -> None:
    """As while brokers are upgraded, when leaders change most."""
    source, target = lost_and_filled(4, EpochEnd(3, 6))
    unknown = [each._replace(topic_id=NOT_TOLD) if name == side else each for name, each in SIDES.items()]
    before, now = (unknown, SIDES.values()) if when == "for the first time" else (SIDES.values(), unknown)
    beginning = await opener(source, target).open(copied_whole(*before), *now, start_at=None)
    assert target.questions == [(3, 4)]
    assert beginning.entry.ledger.next_source_offset == 6


async def test_a_target_restored_to_an_earlier_state_is_compared_with_what_was_copied() -> None:
    """Its leader epochs went back, and its log was filled again."""
    source, target = lost_and_filled(2, EpochEnd(2, 12))
    beginning = await opener(source, target).open(copied_whole(SOURCE, TARGET), SOURCE, TARGET, start_at=None)
    entry = beginning.entry
    assert target.questions == [(2, 2)]
    assert entry.ledger.next_source_offset == 6
    assert entry.at_target.last == 2


@pytest.mark.parametrize("ended", [EpochEnd(2, 12), _NOT_KNOWN])
async def test_a_target_restored_to_an_earlier_state_that_has_all_is_known_by_its_epoch_of_today(
    ended: EpochEnd,
) -> None:
    """Else it would be taken for a broker that has not heard of its successor, and never written to."""
    source, whole = clusters(4, source_first=0, at_target=4)
    target = Led(whole.data, 0, 12, epoch=2, ended=ended)
    entry = (
        await opener(source, target).open(copied_whole(SOURCE, TARGET), SOURCE, TARGET, start_at=None)
    ).entry
    assert entry.ledger.next_source_offset == 12
    assert entry.at_target.last == written_of(entry).epoch == 2


@dataclass
class Changing(Led):
    """Its leader changes once its end was asked for, which the next one tells."""

    changed: bool = False

    async def leader(self, tp: TopicPartition) -> Leader:
        return Leader(2, self.epoch + 1) if self.changed else Leader(1, self.epoch)

    async def offset(self, tp: TopicPartition, which: int, **how: object) -> object:
        self.changed = self.changed or which == LATEST
        return await super().offset(tp, which, **how)


async def test_the_end_of_another_leaders_log_takes_nothing_back() -> None:
    source, whole = clusters(4, source_first=0, at_target=2)
    entry = copied_whole(SOURCE, TARGET)
    target = Changing(whole.data, 0, 6, epoch=3)
    with pytest.raises(ClientError, match="another broker leads it at the target since it was asked"):
        await opener(source, target).open(entry, SOURCE, TARGET, start_at=None)
    assert entry == copied_whole(SOURCE, TARGET)


@dataclass
class ChangingLate(Changing):
    """Once its tail was read."""

    async def offset(self, tp: TopicPartition, which: int, **how: object) -> object:
        return await Side.offset(self, tp, which, **how)

    async def fetch(self, tp: TopicPartition, offset: int, **how: object) -> Fetched:
        self.changed = True
        return await super().fetch(tp, offset, **how)


async def test_a_tail_that_another_leader_may_have_told_is_not_the_first_ones() -> None:
    """Whoever leads next is asked then before it is written to."""
    source, whole = clusters(4, source_first=0, at_target=4)
    entry = Entry(PartitionLedger(SOURCE, TARGET, OffsetMap(0, 0)), at_target=Epochs([(3, 0)]))
    target = ChangingLate(whole.data, 0, 12, epoch=4, ended=EpochEnd(3, 0))
    found = (await opener(source, target).open(entry, SOURCE, TARGET, start_at=None)).entry
    assert found.ledger.next_source_offset == 12
    assert written_of(found).doubts(5)
    assert written_of(found).epoch < 4


async def test_an_epoch_between_two_that_are_known_is_asked_further() -> None:
    source, target = lost_and_filled(6, EpochEnd(4, 20))
    entry = copied_whole(SOURCE, TARGET)
    entry.at_target = Epochs([(3, 0), (5, 12)])
    ends = {5: EpochEnd(4, 20), 3: EpochEnd(3, 6)}

    async def answer(
        node: int, wanted: dict[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, EpochEnd]:
        return {tp: ends[epoch] for tp, (epoch, _) in wanted.items()}

    target.epoch_ends_at = answer  # type: ignore[method-assign]
    beginning = await opener(source, target).open(entry, SOURCE, TARGET, start_at=None)
    assert beginning.entry.ledger.next_source_offset == 6


async def test_what_only_its_content_has_told_is_of_any_epoch_up_to_the_leaders() -> None:
    """The next leader may know the earlier epoch to beyond it, with other records."""
    source, whole = clusters(4, source_first=0, at_target=4)
    target = Led(whole.data, 0, 12, epoch=5, ended=EpochEnd(3, 6))
    beginning = await opener(source, target).open(copied_whole(SOURCE, TARGET), SOURCE, TARGET, start_at=None)
    entry = beginning.entry
    assert entry.ledger.next_source_offset == 12
    assert not written_of(entry).kept(3, 20)
    assert written_of(entry).kept(5, 12)


def test_what_is_known_of_what_the_target_lost_is_not_known_of_what_took_its_place() -> None:
    entry = copied_whole(SOURCE, TARGET)
    entry.at_target = Epochs([(3, 0), (4, 8)])
    lost = Copied((Run(12, 7, 1),), 13, 1, 0, (), first_source_offset=12, target_epoch=4)
    book_into(entry.ledger, lost)
    entry.reached(lost, 12)
    assert not written_of(entry).kept(3, 8)
