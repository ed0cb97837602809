"""Syncing groups between two clusters that exist in memory: what is written, and what is said of the rest."""

import logging

import pytest

from protocol.client import Committed, Metadata, TopicMetadata
from protocol.client.group_calls import GroupDescription, ListedGroup
from protocol.errors import ErrorCode, KafkaError
from protocol.types import ZERO_UUID, TopicPartition, uuid_to_text
from replicator import group_sync
from replicator.filters import NameFilter
from replicator.group_sync import GroupSync
from transfer.ledger import Copied, Lineage, PartitionLedger
from transfer.offset_map import OffsetMap, Run

HERE = TopicPartition("orders", 0)
THERE = TopicPartition("east.orders", 0)
ID1, ID2 = b"1" * 16, b"2" * 16


class Groups:
    """The groups of a cluster, as a `ClusterClient` shows them."""

    def __init__(self):
        self.offsets = {}
        self.kinds = {}
        self.refused = {}
        self.compared = self.commits = 0
        self.on_compare = lambda: None
        self.too_much_metadata = False
        self.refuses = None
        self.refused_groups = set()
        self.topic_ids = {"orders": ID1}
        self.asked_ids = 0

    async def list_groups(self):
        return [ListedGroup(name, self.kinds.get(name, "consumer"), "", "", 1) for name in self.offsets]

    async def committed(self, group, tps=None, again=None):
        if group in self.refused:
            raise self.refused[group]
        if tps is not None:
            self.compared += 1
            self.on_compare()
        return dict(self.offsets.get(group, {}))

    async def metadata(self, topics):
        self.asked_ids += 1
        ids = {name: self.topic_ids.get(name, ZERO_UUID) for name in topics}
        found = {name: TopicMetadata(name, each, ErrorCode.NONE, False, {}) for name, each in ids.items()}
        return Metadata("c1", 1, topics=found)

    async def describe_groups(self, groups):
        return {name: GroupDescription(name, "Empty", "", "", (), 1) for name in groups}

    async def commit(self, group, offsets):
        if self.refuses is not None:
            raise KafkaError(self.refuses, f"group {group}")
        if group in self.refused_groups:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group}")
        if self.too_much_metadata and any(at.metadata for at in offsets.values()):
            raise KafkaError(ErrorCode.OFFSET_METADATA_TOO_LARGE, f"group {group}")
        self.commits += 1
        self.offsets.setdefault(group, {}).update(offsets)


class Clock:
    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(group_sync, "_now", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def sides():
    return Groups(), Groups()


@pytest.fixture
def sync(sides, clock):
    ledger = PartitionLedger(
        Lineage("c1", uuid_to_text(ID1), "orders", 0), Lineage("c2", "id2", "east.orders", 0), OffsetMap()
    )
    ledger.add(Copied((Run(0, 100, 1000),), 1000, 1000, 1, ()))
    return GroupSync(*sides, NameFilter(("shop.*",), ()), lambda: {HERE: ledger}, write=True)


async def test_a_group_that_the_source_does_not_show_us_has_a_reason(sides, sync):
    source, target = sides
    source.offsets = {"shop-a": {HERE: Committed(5)}, "shop-b": {HERE: Committed(6)}}
    source.refused["shop-a"] = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group shop-a")
    await sync.once()
    assert "GROUP_AUTHORIZATION_FAILED" in sync.standings["shop-a"].reason
    assert (sync.standings["shop-b"].reason, target.offsets["shop-b"][THERE].offset) == (None, 106)
    source.refused.clear()
    await sync.once()
    assert sync.standings["shop-a"].reason is None


async def test_a_position_that_was_known_and_cannot_be_read_now_has_a_reason(sides, sync):
    source, _ = sides
    source.offsets = {"shop-a": {HERE: Committed(5)}}
    await sync.once()
    source.refused["shop-a"] = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "group shop-a")
    await sync.once()
    assert "COORDINATOR_NOT_AVAILABLE" in sync.standings["shop-a"].reason
    source.refused.clear()
    await sync.once()
    assert sync.standings["shop-a"].reason is None


async def test_share_groups_have_a_reason_and_streams_groups_are_synced(sides, sync):
    source, target = sides
    source.offsets = {"shop-share": {}, "shop-streams": {HERE: Committed(5)}, "other-share": {}}
    source.kinds = {"shop-share": "share", "shop-streams": "streams", "other-share": "share"}
    await sync.once()
    assert "share group" in sync.standings["shop-share"].reason
    assert sync.standings.keys() == {"shop-share", "shop-streams"}
    assert target.offsets == {"shop-streams": {THERE: Committed(105)}}


async def test_metadata_goes_with_an_exact_position(sides, sync):
    source, target = sides
    source.offsets = {
        "shop-a": {HERE: Committed(5, 3, "until noon")},
        "shop-b": {HERE: Committed(1005, 3, "until one")},
        "shop-c": {HERE: Committed(7, 3, None)},
    }
    await sync.once()
    # epochs are the source's; what was said of a position further on does not hold for the end of the copy
    assert target.offsets["shop-a"] == {THERE: Committed(105, -1, "until noon")}
    assert target.offsets["shop-b"] == {THERE: Committed(1100, -1, "")}
    assert target.offsets["shop-c"] == {THERE: Committed(107, -1, "")}


async def test_metadata_that_the_target_does_not_take_holds_up_no_position(sides, sync):
    source, target = sides
    target.too_much_metadata = True
    source.offsets = {"shop-a": {HERE: Committed(5, 3, "x" * 5000)}}
    await sync.once()
    assert target.offsets["shop-a"] == {THERE: Committed(105, -1, "")}
    assert sync.standings["shop-a"].reason is None


async def test_a_reset_at_the_target_is_seen_within_seconds_said_and_set_right(sides, sync, clock, caplog):
    source, target = sides
    source.offsets = {"shop-a": {HERE: Committed(500)}}
    await sync.once()
    target.offsets["shop-a"][THERE] = Committed(0)
    clock.now += 6
    with caplog.at_level(logging.WARNING):
        await sync.once()
    assert target.offsets["shop-a"][THERE].offset == 600
    (said,) = caplog.messages
    assert "shop-a" in said
    assert "taken back at the target" in said
    assert "groups_exclude" in said


async def test_first_positions_and_progress_are_no_resets(sides, sync, clock, caplog):
    source, target = sides
    source.offsets = {"shop-a": {HERE: Committed(500)}}
    target.offsets = {"shop-a": {THERE: Committed(3)}}
    with caplog.at_level(logging.WARNING):
        await sync.once()
        source.offsets["shop-a"][HERE] = Committed(600)
        await sync.once()
    assert target.offsets["shop-a"][THERE].offset == 700
    assert caplog.messages == []


async def test_many_groups_at_rest_are_compared_a_few_at_a_time(sides, sync, clock):
    source, target = sides
    source.offsets = {f"shop-{number:03}": {HERE: Committed(number)} for number in range(200)}
    await sync.once()
    before = target.compared
    clock.now += 10
    await sync.once()
    assert target.compared == before
    clock.now += 20
    await sync.once()
    assert target.compared == before + 200


async def test_positions_at_rest_are_written_again_before_the_target_forgets_them(sides, sync, clock):
    """Of a group that nobody reads with Kafka drops each offset `offsets.retention.minutes` after its commit;
    while the source is away nobody would write it again."""
    source, target = sides
    source.offsets = {"shop-a": {HERE: Committed(500, -1, "m")}}
    await sync.once()
    target.offsets["shop-a"][TopicPartition("own", 0)] = Committed(1)
    assert target.commits == 1
    for _ in range(240):
        clock.now += 30
        await sync.once()
    assert 2 <= target.commits <= 4
    assert target.offsets["shop-a"][THERE] == Committed(600, -1, "m")
    target.offsets["shop-a"][THERE] = Committed(650, 2, "read on here")
    for _ in range(240):
        clock.now += 30
        await sync.once()
    assert target.offsets["shop-a"][THERE] == Committed(650, 2, "read on here")


async def test_what_was_compared_is_written_before_many_others_are_compared(sides, sync):
    """A consumer without membership may commit meanwhile; what was seen of its group must be fresh."""
    source, target = sides
    source.offsets = {f"shop-{number:03}": {HERE: Committed(10)} for number in range(300)}

    def read_on():
        if target.compared == 300:
            target.offsets.setdefault("shop-000", {})[THERE] = Committed(150)

    target.on_compare = read_on
    await sync.once()
    assert target.offsets["shop-000"][THERE].offset == 150
    assert len(target.offsets) == 300


class Notes:
    def __init__(self):
        self.noted = {}

    def groups(self):
        return self.noted

    async def save_groups(self, notes):
        self.noted = {group: of for group, of in {**self.noted, **notes}.items() if of}


async def test_what_the_target_refused_is_not_taken_for_the_links(sides, sync):
    """A group got members between the look and the write; it read to where the link wanted it."""
    source, target = sides
    notes = Notes()
    kept = {"notebook": notes, "follow_rewinds": True}
    sync = GroupSync(*sides, NameFilter(("shop.*",), ()), sync._ledgers, write=True, **kept)
    source.offsets = {"shop-a": {HERE: Committed(400)}, "shop-new": {HERE: Committed(900)}}
    target.refused_groups = {"shop-new"}
    await sync.once()
    source.offsets["shop-a"][HERE] = Committed(900)
    target.refused_groups = {"shop-a", "shop-new"}
    await sync.once()
    assert notes.noted["shop-a"][THERE].target == 500
    assert not notes.noted.get("shop-new")
    target.refused_groups = set()
    for group in ("shop-a", "shop-new"):
        target.offsets[group] = {THERE: Committed(1000)}
        source.offsets[group] = {HERE: Committed(50)}
    await sync.once()
    assert {group: of[THERE].offset for group, of in target.offsets.items()} == {
        "shop-a": 1000,
        "shop-new": 1000,
    }
    assert "not this link" in sync.standings["shop-a"].reason


@pytest.mark.parametrize("follow", [False, True])
async def test_offsets_of_a_topic_that_was_made_again_are_not_taken_for_those_of_the_former(
    sides, sync, follow
):
    """Until the link has noticed, or while it waits (`on_recreated: stop`), its ledger is the former's."""
    source, target = sides
    if follow:
        ledgers = sync._ledgers
        kept = {"notebook": Notes(), "follow_rewinds": True}
        sync = GroupSync(*sides, NameFilter(("shop.*",), ()), ledgers, write=True, **kept)
    source.offsets = {"shop-read": {HERE: Committed(900)}, "shop-late": {HERE: Committed(10)}}
    await sync.once()
    assert target.offsets == {"shop-read": {THERE: Committed(1000)}, "shop-late": {THERE: Committed(110)}}
    source.topic_ids["orders"] = ID2
    source.offsets = {"shop-read": {HERE: Committed(50)}, "shop-late": {HERE: Committed(50)}}
    await sync.once()
    assert target.offsets == {"shop-read": {THERE: Committed(1000)}, "shop-late": {THERE: Committed(110)}}
    for group in ("shop-read", "shop-late"):
        assert "created again" in sync.standings[group].reason
        assert sync.translations[group].positions == {}
    (ledger,) = sync._ledgers().values()
    ledger.source = ledger.source._replace(topic_id=uuid_to_text(ID2))  # now it is in the ledger
    await sync.once()
    assert target.offsets["shop-late"] == {THERE: Committed(150)}


async def test_topic_ids_are_asked_for_only_where_a_group_moves(sides, sync):
    source, _ = sides
    source.offsets = {"shop-a": {HERE: Committed(5)}}
    for _ in range(3):
        await sync.once()
    assert source.asked_ids == 1
    source.offsets["shop-a"][HERE] = Committed(6)
    await sync.once()
    assert source.asked_ids == 2


async def test_a_source_without_topic_ids_is_translated(sides, sync):
    source, target = sides
    source.topic_ids = {}
    source.offsets = {"shop-a": {HERE: Committed(5)}}
    for _ in range(3):
        await sync.once()
    assert target.offsets["shop-a"] == {THERE: Committed(105)}
    assert source.asked_ids == 1


async def test_why_the_target_refuses_a_group_is_said_in_words(sides, sync):
    source, target = sides
    source.offsets = {"shop-a": {HERE: Committed(5)}}
    for code, words in (
        (ErrorCode.UNKNOWN_MEMBER_ID, "active at the target"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "another kind"),  # what Apache Kafka says of a share group
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "GROUP_AUTHORIZATION_FAILED"),
    ):
        target.refuses = code
        await sync.once()
        assert words in sync.standings["shop-a"].reason
    target.refuses = None
    await sync.once()
    assert sync.standings["shop-a"].reason is None
