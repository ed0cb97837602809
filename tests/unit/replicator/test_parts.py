"""What holds for all partitions of a link: which differences it ends with (I7), whose progress counts."""

import pytest
from prometheus_client import CollectorRegistry

from protocol.client import PartitionMetadata, TopicMetadata
from protocol.errors import ErrorCode
from protocol.types import TopicPartition, uuid_from_text, uuid_to_text
from replicator.acknowledgements import Acknowledgement
from replicator.book import State
from replicator.discovery import Wanted
from replicator.entry_rows import Entry, rows_of
from replicator.metrics import LinkMetrics
from replicator.parts import Parts
from replicator.progress import ProgressStore
from replicator.settings import LinkSettings
from replicator.workers.permit import now
from tests.support.target_in_memory import TargetInMemory
from transfer.ledger import NOT_TOLD, Copied, Gap, Lineage, PartitionLedger
from transfer.offset_map import Run

TP, MIRROR = TopicPartition("orders", 0), TopicPartition("east.orders", 0)


def entry(topic="orders", copied=0):
    ledger = PartitionLedger(Lineage("c", "s", topic, 0), Lineage("c", "t", f"east.{topic}", 0))
    if copied:
        ledger.add(Copied((Run(0, 0, copied),), copied, copied, 1, (1,)))
    return Entry(ledger)


@pytest.fixture
async def parts():
    settings = LinkSettings.model_validate(
        {
            "source": {"alias": "east", "bootstrap": "e:1"},
            "target": {"alias": "west", "bootstrap": "w:1"},
            "topics": ["orders"],
        }
    )
    cluster = TargetInMemory({settings.progress_topic: bytes(15) + b"\1"})
    made = Parts(settings, cluster, cluster, LinkMetrics("east->west", CollectorRegistry()))
    made.permit.extend(now(), 1e9)
    yield made
    await made.aclose()


async def test_a_gap_of_a_partition_that_is_not_read_now_counts_until_it_is_acknowledged(parts):
    """A topic that is paused, or gone at the source, as the link starts: its mirror lacks records still."""
    assert parts.open_differences() == []
    for topic in ("orders", "excluded"):
        made = entry(topic)
        made.ledger.add_gap(Gap(0, 7, "retention", 1))
        parts.store.progress.apply(rows_of(made)[0])
    found = parts.open_differences()
    assert [(one.tp, one.start, one.end) for one in found] == [(TP, 0, 7)]
    parts.book.account(TP, MIRROR)  # it waits for the source
    assert parts.open_differences() == found
    parts.store.progress.acknowledged[found[0]] = Acknowledgement("ann", "known", 2)
    assert parts.open_differences() == []


async def test_the_last_word_of_a_worker_that_has_lost_a_partition_is_written_over(parts):
    """The log keeps the newest row of a key: without the owner's word behind it a restart would go back."""
    cluster, name = parts.target_client, parts.settings.progress_topic
    owner, former = parts.store, ProgressStore(parts.target_client, name)
    owner.epoch, former.epoch = 5, 4
    parts.book.account(TP, MIRROR).entry = entry(copied=100)
    parts.book.mark(TP)
    await parts.save()
    await former.save([entry(copied=60)])
    progress = await owner.refresh()
    assert (progress.entry(TP).ledger.next_source_offset, progress.highest_epoch) == (100, 5)
    await parts.save()
    last = list(cluster.records(TopicPartition(name, 0)).values())[-1:]
    compacted = ProgressStore(cluster, name).progress
    compacted.apply((record.key, record.value) for record in last)
    assert compacted.entry(TP).ledger.next_source_offset == 100


async def test_topics_made_again_are_noticed_by_their_ids_where_a_broker_says_nothing(parts, monkeypatch):
    asked = []
    monkeypatch.setattr(parts.source, "look_again", asked.append)

    def look(source_id, target_id):
        rows = {0: PartitionMetadata(1, 0, (1,), (1,))}
        here, there = (
            TopicMetadata(name, uuid_from_text(text), ErrorCode.NONE, False, rows)
            for name, text in ((TP.topic, source_id), (MIRROR.topic, target_id))
        )
        account.state, account.reason = State.RUNNING, ""
        parts.partitions._check_target(account, Wanted(here, MIRROR.topic, there))
        return account.state

    old, new = (uuid_to_text(bytes(15) + one) for one in (b"\1", b"\2"))
    account = parts.book.account(TP, MIRROR)
    account.entry = Entry(PartitionLedger(Lineage("c", old, *TP), Lineage("c", old, *MIRROR)))
    for ids, expected in (
        ((old, old), (State.RUNNING, [])),
        ((NOT_TOLD, NOT_TOLD), (State.RUNNING, [])),
        ((new, old), (State.RUNNING, [TP])),
        ((old, new), (State.WAITING, [])),
    ):
        asked.clear()
        assert (look(*ids), asked) == expected
    account.entry.ledger.target = Lineage("c", NOT_TOLD, *MIRROR)
    assert look(old, new) is State.WAITING  # to note it
