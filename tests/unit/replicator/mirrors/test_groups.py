"""What of a group's offsets is written at the target."""

from protocol.client import Committed, Metadata, TopicMetadata
from protocol.client.group_calls import GroupDescription, ListedGroup
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition, uuid_to_text
from replicator.filters import NameFilter
from replicator.mirrors.groups import GroupCopy, decide

TP = TopicPartition("t", 0)
ID1, ID2 = b"1" * 16, b"2" * 16


def only(here: int, there: int | None, end: int, written: int | None = None):
    known = {} if there is None else {TP: Committed(there, 0, "")}
    mine = {} if written is None else {TP: written}
    commits, notes = decide({TP: Committed(here, 3, "")}, known, {TP: end}, mine)
    return commits.get(TP), notes


def test_offset_and_epoch_are_copied_as_they_are() -> None:
    assert only(5, None, 9) == (Committed(5, 3, ""), [])
    assert only(5, 5, 9) == (None, [])


def test_nothing_points_past_the_end_of_the_mirror() -> None:
    commit, notes = only(15, None, 9)
    assert commit == Committed(9, -1, "")
    assert "wait for records" in notes[0]


def test_a_position_goes_back_only_where_the_link_has_written_it() -> None:
    assert only(5, 8, 9, written=8)[0] == Committed(5, 3, "")
    commit, notes = only(5, 8, 9, written=7)
    assert commit is None
    assert "not taken back" in notes[0]


def test_metadata_goes_with_its_position_and_with_no_other() -> None:
    here = {TP: Committed(15, 3, "until noon")}
    assert decide(here, {}, {TP: 20}, {})[0] == {TP: Committed(15, 3, "until noon")}
    assert decide(here, {}, {TP: 9}, {})[0] == {TP: Committed(9, -1, "")}
    assert decide(here, {TP: Committed(9, -1, "")}, {TP: 9}, {})[0] == {}


class Groups:
    """The groups of a cluster, as a `ClusterClient` shows them."""

    def __init__(self, kind: str = "consumer") -> None:
        self.kind = kind
        self.offsets: dict[str, dict[TopicPartition, Committed]] = {}
        self.active = False
        self.topic_id = ID1
        self.asked = self.looks = 0

    async def list_groups(self):
        return [ListedGroup(name, self.kind, "", "", 1) for name in self.offsets]

    async def committed(self, group, tps=None, again=None):
        return dict(self.offsets.get(group, {}))

    async def metadata(self, topics):
        self.looks += 1
        found = {name: TopicMetadata(name, self.topic_id, ErrorCode.NONE, False, {}) for name in topics}
        return Metadata("c1", 1, topics=found)

    async def describe_groups(self, groups):
        return {name: GroupDescription(name, "Empty", "", "", (), 1) for name in groups}

    async def commit(self, group, offsets):
        self.asked += 1
        if self.active:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, group)
        self.offsets.setdefault(group, {}).update(offsets)


class Store:
    def __init__(self) -> None:
        self.noted = {}

    async def load(self):
        pass

    async def refresh(self):
        pass

    def groups(self):
        return self.noted

    async def save_groups(self, notes):
        self.noted = {group: of for group, of in {**self.noted, **notes}.items() if of}


def copy_of(source: Groups, target: Groups, store: Store) -> GroupCopy:
    ids = {TP.topic: uuid_to_text(ID1)}
    return GroupCopy(source, target, NameFilter((".*",), ()), lambda: {TP: 9}, store, lambda: ids)


async def test_positions_at_rest_are_written_again_and_not_taken_for_the_links(monkeypatch) -> None:
    now = 1000.0
    monkeypatch.setattr("replicator.mirrors.groups.time.monotonic", lambda: now)
    source, target, store = Groups(), Groups(), Store()
    source.offsets = {"g": {TP: Committed(5, 3, "m")}}
    target.offsets = {"g": {TP: Committed(5, 3, "m")}}
    copy = copy_of(source, target, store)
    for _ in range(3600):
        now += 2
        await copy.once()
    assert 2 <= target.asked <= 3
    assert store.noted == {}
    target.active, target.asked = True, 0
    for _ in range(1800):
        now += 2
        await copy.once()
        assert copy.reasons == {"g": None}
    assert target.asked == 1


async def test_topic_ids_are_asked_for_only_where_a_group_moves() -> None:
    source, target = Groups(), Groups()
    target.active = True  # it is looked at again each time
    copy = copy_of(source, target, Store())
    for offset, looks in ((5, 1), (6, 2)):
        source.offsets = {"g": {TP: Committed(offset)}}
        for _ in range(5):
            await copy.once()
        assert (target.asked, source.looks) == (5 * looks, looks)


async def test_offsets_of_a_topic_that_was_made_again_move_no_group_in_the_mirror_of_the_former() -> None:
    source, target = Groups(), Groups()
    source.offsets = {"g": {TP: Committed(8)}, "late": {TP: Committed(1)}}
    copy = copy_of(source, target, Store())
    await copy.once()
    assert target.offsets == source.offsets
    source.topic_id = ID2
    source.offsets = {"g": {TP: Committed(3)}, "late": {TP: Committed(3)}}
    await copy.once()
    assert target.offsets == {"g": {TP: Committed(8)}, "late": {TP: Committed(1)}}
    assert "created again" in (copy.reasons["g"] or "")
    source.topic_id = bytes(16)  # a broker without topic ids
    await copy.once()
    assert target.offsets == source.offsets


async def test_what_the_target_refused_is_not_taken_for_the_links() -> None:
    """A group got members between the look and the write; it read to where the link wanted it."""
    source, target = Groups(), Groups()
    source.offsets = {"g": {TP: Committed(8)}}
    copy = copy_of(source, target, Store())
    target.active = True
    await copy.once()
    assert copy.reasons == {"g": "the group is active at the target"}
    target.active = False
    target.offsets = {"g": {TP: Committed(8)}}
    source.offsets = {"g": {TP: Committed(3)}}
    await copy.once()
    assert target.offsets["g"] == {TP: Committed(8)}
    assert "not taken back" in (copy.reasons["g"] or "")


async def test_share_groups_have_a_reason() -> None:
    source, target = Groups("share"), Groups()
    source.offsets = {"g": {}}
    copy = copy_of(source, target, Store())
    await copy.once()
    assert "share group" in (copy.reasons["g"] or "")
    source.offsets = {}
    await copy.once()
    assert copy.reasons == {}
