"""From a link back to MirrorMaker 2, and again to the link. MirrorMaker 2 is played, by what it writes and
where (for the real one see tests/interop/mirrormaker)."""

import json
from dataclasses import dataclass, replace

import confluent_kafka
import pytest

from protocol.client import ClusterClient
from protocol.records import Codec, Record
from protocol.types import TopicPartition
from replicator.layouts import OffsetSync
from replicator.link_report import link_report
from replicator.mirrormaker.connect_offsets import partition_of
from replicator.mirrormaker.handing_back import NotHandedBackError, hand_back
from replicator.mirrormaker.takeover import StillRunningError
from replicator.progress import ProgressStore, read_ledgers
from replicator.settings import LinkSettings
from tests.cluster.links import (
    content,
    create,
    eventually,
    fresh,
    produce,
    records,
    running,
    some,
)

pytestmark = pytest.mark.cluster

PARTITIONS = 3
BOUND_S = 120


@dataclass
class Played:
    """MirrorMaker 2 from `east` to `west` with one topic."""

    east: ClusterClient
    west: ClusterClient
    link: LinkSettings
    topic: str

    @property
    def mirror(self) -> str:
        return f"{self.link.source.alias}.{self.topic}"

    @property
    def offsets_topic(self) -> str:
        return self.link.take_over.offsets_topic

    def key(self, partition: int = 0) -> bytes:
        spot = {"cluster": self.link.source.alias, "partition": partition, "topic": self.topic}
        return json.dumps(["MirrorSourceConnector", spot], separators=(",", ":")).encode()

    async def copies(self, first: int, end: int, *, stores: bool = True) -> None:
        """Source offsets of partition 0, one batch; its sync is of the first of them."""
        batch = (await records(self.east, self.topic))[first:end]
        at = await produce(self.west, self.mirror, batch, codec=Codec.LZ4)
        syncs = f"mm2-offset-syncs.{self.link.target.alias}.internal"
        sync = OffsetSync(self.topic, 0, first, at)
        await produce(self.east, syncs, [Record(0, 0, sync.key(), sync.value())])
        if stores:
            await self.stores(end)

    async def stores(self, position: int, partition: int = 0) -> None:
        key = self.key(partition)
        row = Record(0, 0, key, b'{"offset":%d}' % (position - 1))
        await produce(self.west, self.offsets_topic, [row], partition_of(key, PARTITIONS))

    async def stored(self) -> dict[tuple[int, bytes], bytes | None]:
        """The last value of each key, by partition of the topic and key."""
        return {
            (number, record.key): record.value
            for number in range(PARTITIONS)
            for record in await records(self.west, self.offsets_topic, number)
        }

    async def link_copies(self, end: int, code: int = 0) -> None:
        """Runs the link until it has stored that it stands there."""
        async with running(self.link) as process:

            async def reads() -> bool:
                return process.partition(self.topic).get("state") == "running"

            await eventually(reads, "the link reads the source")  # all may be there already
            await self.arrives(end)
            assert await process.stop() == code

    async def arrives(self, end: int) -> None:
        async def arrived() -> bool:
            ledger = (await read_ledgers(self.west, self.link.name)).get(TopicPartition(self.topic, 0))
            return ledger is not None and ledger.next_source_offset == end

        await eventually(arrived, f"the link stands at {end}", BOUND_S)

    async def hand_back(self, *, dry_run: bool = False):
        return await hand_back(self.east, self.west, self.link, dry_run=dry_run)

    async def assert_once(self) -> None:
        assert await content(self.west, self.mirror) == await content(self.east, self.topic)


async def made_again(played: Played) -> None:
    """The source's topic."""
    await played.east.delete_topics([played.topic])

    async def gone() -> bool:
        return played.topic not in (await played.east.metadata(None)).topics

    await eventually(gone, "it is deleted", BOUND_S)
    await create(played.east, played.topic)


@pytest.fixture
async def played(pair, clients):
    east, west = clients
    topic = fresh("back")
    link = pair.link(topic, heartbeats_replication=False, emit_heartbeats=False)
    told = {
        "offsets_topic": f"mm2-offsets.{link.source.alias}.internal",
        "group": f"{link.source.alias}-mm2",
        "partitions": PARTITIONS,
    }
    link = LinkSettings.model_validate({**link.model_dump(), "take_over": told})
    await create(east, topic)
    return Played(east, west, link, topic)


async def test_there_and_back_and_there_again_copies_each_record_once(played):
    await produce(played.east, played.topic, some(100, "first"))
    await played.link_copies(100)
    shown = await played.hand_back(dry_run=True)
    assert shown.made
    assert [(row.tp.topic, row.before, row.after, row.left) for row in shown.rows] == [
        (played.topic, None, 100, "")
    ]
    assert played.offsets_topic not in (await played.west.metadata(None)).topics
    done = await played.hand_back()
    assert done == shown
    standing = (await link_report(played.link)).standing
    assert (standing["state"], standing["reason"]) == ("not running", "MirrorMaker 2 has its work")
    place = partition_of(played.key(), PARTITIONS), played.key()
    assert await played.stored() == {place: b'{"offset":99}'}
    configs = (await played.west.describe_configs([played.offsets_topic]))[played.offsets_topic]
    assert configs["cleanup.policy"].value == "compact"
    again = await played.hand_back()
    assert [(row.before, row.after) for row in again.rows] == [(100, 100)]
    assert not again.made

    await produce(played.east, played.topic, some(100, "second"))
    await played.copies(100, 150)
    await played.copies(150, 180, stores=False)  # killed before it stored that
    await produce(played.east, played.topic, some(50, "third"))
    await played.link_copies(250)
    await played.assert_once()
    ledger = (await read_ledgers(played.west, played.link.name))[TopicPartition(played.topic, 0)]
    assert [tuple(run) for run in ledger.runs] == [(0, 0, 250)]
    assert any("MirrorMaker 2 copied source offsets 100 to 180" in note.text for note in ledger.notes)

    done = await played.hand_back()
    assert [(row.before, row.after) for row in done.rows] == [(150, 250)]
    await played.link_copies(250)  # MirrorMaker 2 never ran
    await played.assert_once()


async def test_exactly_once_is_handed_back_from_its_transactions(played):
    played.link = played.link.model_copy(update={"exactly_once": True})
    await produce(played.east, played.topic, some(100, "first"))
    await played.link_copies(100)
    done = await played.hand_back()
    assert [(row.before, row.after) for row in done.rows] == [(None, 100)]
    await produce(played.east, played.topic, some(30, "second"))
    await played.copies(100, 110)
    await played.link_copies(130)
    found = await records(played.west, played.mirror)
    assert [record.value for record in found] == [
        record.value for record in await records(played.east, played.topic)
    ]


async def test_mirrormaker_that_ran_without_being_told_is_gone_on_behind(played, caplog):
    """It copied again what the link had; what it copied besides, the link does not."""
    await create(played.west, played.offsets_topic, PARTITIONS, cleanup_policy="compact")
    await create(played.west, played.mirror)
    await create(
        played.east, f"mm2-offset-syncs.{played.link.target.alias}.internal", cleanup_policy="compact"
    )
    await produce(played.east, played.topic, some(100, "first"))
    await played.copies(0, 60)
    await played.link_copies(100)
    await produce(played.east, played.topic, some(50, "second"))
    await played.copies(60, 130)
    with pytest.raises(AssertionError):
        await played.assert_once()
    left = await played.hand_back()
    assert "start the link" in left.rows[0].left
    assert (left.rows[0].before, left.rows[0].after) == (130, 130)
    noted = (await ProgressStore(played.west, played.link.progress_topic).refresh()).mirrormaker
    assert noted.positions == {TopicPartition(played.topic, 0): 60}  # where it moved is news to the link
    await played.link_copies(150)
    values = [record.value for record in await records(played.west, played.mirror)]
    source = [record.value for record in await records(played.east, played.topic)]
    assert values == source[:100] + source[60:130] + source[130:]
    done = await played.hand_back()
    assert [(row.before, row.after, row.left) for row in done.rows] == [(130, 150, "")]


async def test_without_syncs_what_it_stored_counts(played):
    """And records that are changed on the way (a transformation), so that none is recognised."""
    await produce(played.east, played.topic, some(100, "first"))
    await played.link_copies(100)
    await played.hand_back()
    await produce(played.east, played.topic, some(100, "second"))
    await produce(played.west, played.mirror, some(60, "changed"))
    await played.stores(160)
    await played.link_copies(200)
    source = [record.value for record in await records(played.east, played.topic)]
    values = [record.value for record in await records(played.west, played.mirror)]
    assert values[:100] + values[160:] == source[:100] + source[160:]
    ledger = (await read_ledgers(played.west, played.link.name))[TopicPartition(played.topic, 0)]
    assert [tuple(run) for run in ledger.runs] == [(0, 0, 200)]


async def test_an_old_position_of_a_topic_that_was_made_again_counts_for_nothing(played):
    """MirrorMaker 2 stood at 100 in the old one. The link copies all of the new one, and sets it back."""
    await create(played.west, played.offsets_topic, PARTITIONS, cleanup_policy="compact")
    await create(played.west, played.mirror)
    await create(
        played.east, f"mm2-offset-syncs.{played.link.target.alias}.internal", cleanup_policy="compact"
    )
    await produce(played.east, played.topic, some(100, "old"))
    await played.copies(0, 100)
    await played.link_copies(100)
    await made_again(played)
    await produce(played.east, played.topic, some(20, "new"))

    async def copied():
        return len(await records(played.west, played.mirror)) == 120

    async with running(played.link) as process:
        await eventually(copied, "the new one is copied", BOUND_S)
        assert await process.stop() == 3  # nobody knows what the old one held at its end
    await produce(played.east, played.topic, some(200, "newer"))
    await played.link_copies(220, 3)
    values = [record.value for record in await records(played.west, played.mirror)]
    assert values[100:] == [record.value for record in await records(played.east, played.topic)]
    done = await played.hand_back()
    assert [(row.before, row.after, row.left) for row in done.rows] == [(100, 220, "")]
    assert any("re-created" in remark for remark in done.rows[0].remarks)


async def test_it_is_refused_while_the_link_runs_or_mirrormaker_does(pair, played):
    with pytest.raises(NotHandedBackError, match="no progress"):
        await played.hand_back()
    await produce(played.east, played.topic, some(10))
    async with running(played.link) as process:
        await played.arrives(10)
        with pytest.raises(NotHandedBackError, match=r"runs: .*stop all its workers first"):
            await played.hand_back(dry_run=True)
        assert await process.stop() == 0
    unseeing = replace(played, link=played.link.model_copy(update={"take_over": None}))
    with pytest.raises(NotHandedBackError, match="take_over_mirrormaker"):
        await unseeing.hand_back()
    group = played.link.take_over.group
    consumer = confluent_kafka.Consumer({"bootstrap.servers": pair.west, "group.id": group})
    consumer.subscribe([played.mirror])

    async def joined():
        consumer.poll(0)
        return bool((await played.west.describe_groups([group]))[group].members)

    try:
        await eventually(joined, "MirrorMaker 2's worker is a member", BOUND_S)
        with pytest.raises(StillRunningError):
            await played.hand_back()
    finally:
        consumer.close()
    assert (await played.hand_back()).rows[0].after == 10
    progress = await ProgressStore(played.west, played.link.progress_topic).refresh()
    assert progress.mirrormaker.handed_back_ms > 0
    consumer = confluent_kafka.Consumer({"bootstrap.servers": pair.west, "group.id": group})
    consumer.subscribe([played.mirror])
    try:
        await eventually(joined, "MirrorMaker 2 is started", BOUND_S)
        await produce(played.east, played.topic, some(5))
        async with running(played.link) as process:

            async def waits():
                return "MirrorMaker 2 still copies" in str(process.status.to_json().get("problems"))

            await eventually(waits, "the link waits for it", BOUND_S)
            assert len(await records(played.west, played.mirror)) == 10
            await played.copies(10, 13)
            consumer.close()
            await played.arrives(15)
            assert await process.stop() == 0
    finally:
        consumer.close()
    await played.assert_once()


async def test_what_a_killed_link_left_behind_its_progress_is_not_copied_again(played):
    await produce(played.east, played.topic, some(100, "first"))
    await played.link_copies(100)
    unknown = some(10, "second")  # as the link had written them when it was killed before it stored that
    await produce(played.east, played.topic, unknown)
    await produce(played.west, played.mirror, unknown)
    await produce(played.east, played.topic, some(10, "third"))
    done = await played.hand_back()
    assert [(row.before, row.after, row.left) for row in done.rows] == [(None, 110, "")]


async def test_a_topic_that_was_made_again_while_mirrormaker_copied_is_gone_on_with(played):
    await produce(played.east, played.topic, some(100, "old"))
    await played.link_copies(100)
    await played.hand_back()
    await made_again(played)
    await produce(played.east, played.topic, some(20, "new"))
    await played.copies(0, 15)
    await played.link_copies(20, 3)  # nobody knows what the old one held at its end
    values = [record.value for record in await records(played.west, played.mirror)]
    assert values[100:] == [record.value for record in await records(played.east, played.topic)]
    done = await played.hand_back()
    assert [(row.before, row.after, row.left) for row in done.rows] == [(15, 20, "")]


async def test_a_topic_that_was_made_again_after_the_link_is_begun_anew(played):
    """Where it stood would leave out as many records of the new one."""
    await produce(played.east, played.topic, some(100, "old"))
    await played.link_copies(100)
    assert (await played.hand_back()).rows[0].after == 100
    await made_again(played)
    await produce(played.east, played.topic, some(200, "new"))
    done = await played.hand_back()
    assert [(row.before, row.after, row.left) for row in done.rows] == [(100, None, "")]
    assert list((await played.stored()).values()) == [None]


async def test_after_an_older_version_a_mirrormaker_ahead_is_looked_at_by_the_link_first(played):
    await produce(played.east, played.topic, some(100, "first"))
    await played.link_copies(100)
    await create(played.west, played.offsets_topic, PARTITIONS, cleanup_policy="compact")
    await played.stores(150)
    await produce(played.west, played.link.progress_topic, [Record(0, 0, b"mirrormaker", None)])
    with pytest.raises(NotHandedBackError, match="start the link"):
        await played.hand_back()
    assert list((await played.stored()).values()) == [b'{"offset":149}']
    await produce(played.east, played.topic, some(100, "second"))
    await played.link_copies(200)  # nothing shows that MirrorMaker 2 copied these: none is left out
    await played.assert_once()
    assert [(row.before, row.after) for row in (await played.hand_back()).rows] == [(150, 200)]
