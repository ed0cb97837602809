"""Progress and ledgers of a link: records of one compacted topic at the target.

Owns putting the records together again, and storing them; what is in one is known by the module named below.
Everybody who wants to translate, audit or wait for a link reads this topic through `read_ledgers`.

Keys: `link`, `mirrormaker` and `settings/<topic>` (`link_rows`), `lease`,
`acls/<kind>/<pattern>/<name>`, `withheld/…` and `writers/…` (`acl_store`),
`partition/<topic>/<n>`, `former/<topic>/<n>/<topic at the target>` and
`runs/<topic>/<n>/<source topic id>/<target topic id>/<slice>` (`entry_rows`),
`acknowledged/<topic>/<n>/<kind>/<start>/<end>/<found at>`, `transactional-id/<id>`, `mirror/<topic>`
(`mirror_rows`), `group/<group>` (`group_rows`), `difference/…` of mirrors with identical offsets
(`difference_rows`), `control/…` and `worker/…` (`workers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TypeVar

from protocol.client import Acl, ClusterClient
from protocol.types import TopicPartition
from replicator import acknowledgements, acl_store, difference_rows, group_rows, mirror_rows
from replicator.acknowledgements import Acknowledged, Acknowledgement, Difference
from replicator.acl_rules import Granted
from replicator.entry_rows import (
    Entry,
    epoch_of,
    former_key,
    former_row_of,
    head_key,
    read_entry,
    rows_of,
    slices_kept,
)
from replicator.group_rows import GroupNotes
from replicator.internal_topics import InternalTopic, batches_of
from replicator.lease import Lease, LeaseView
from replicator.link_rows import (
    LINK_KEY,
    MIRRORMAKER_KEY,
    SETTINGS,
    Asked,
    First,
    Seen,
    initial_row_of,
    read_asked,
    read_initial,
    read_seen,
    read_settings,
    seen_row_of,
    settings_row_of,
)
from replicator.mirror_rows import Mirror
from replicator.open_transactions import Row
from replicator.settings import progress_topic
from transfer.ledger import LedgerError, PartitionLedger

_log = logging.getLogger("isthmus.replicator")

K = TypeVar("K")

_LEASE_KEY = b"lease"
_TRANSACTIONAL_ID = b"transactional-id/"
_CONFIGS = {"segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.1"}


@dataclass(slots=True)
class Progress:
    """The rows of a progress topic, put together."""

    initial: dict[TopicPartition, First] | None = None
    """Where the partitions of the link's first start begin; None: it never started. Partitions that are
    neither here nor have an entry were born later."""
    asked: Asked = field(default_factory=list)
    mirrormaker: Seen | None = None
    """What is known of MirrorMaker 2's progress; None: an older version ran last, or none."""
    lease: LeaseView = field(default_factory=LeaseView)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    """What the link has set at the target, by source topic."""
    acknowledged: dict[Difference, Acknowledgement] = field(default_factory=dict)
    """Differences that somebody has taken note of."""
    notes: dict[bytes, bytes] = field(default_factory=dict)
    """What people want (`control/…`) and what workers say of themselves (`worker/…`): see `workers`."""
    changes: Counter[bytes] = field(default_factory=Counter)
    """How often the value of each note was another than before, as far as was read."""
    transactional_ids: dict[str, str] = field(default_factory=dict)
    """Of producers that may have a transaction open, and the incarnation of the worker that each is of."""
    registrations: Counter[str] = field(default_factory=Counter)
    """How often each was noted, as far as was read: who is fenced may come back meanwhile."""
    mirrors: dict[str, Mirror] = field(default_factory=dict)
    """By source topic, which mirror is current (`on_recreated: new_mirror`)."""
    groups: dict[str, GroupNotes] = field(default_factory=dict)
    """What the link has set of groups, where its policies ask for that (`group_rows`)."""
    highest_epoch: int = 0
    overwritten: set[TopicPartition] = field(default_factory=set)
    """Partitions whose newest record in the log is not their owner's: the owner has to write it again."""
    _ledgers: dict[TopicPartition, tuple[bytes, PartitionLedger]] = field(default_factory=dict)
    _acls: dict[bytes, dict[Acl, Granted]] = field(default_factory=dict)
    _differences: dict[TopicPartition, dict[bytes, Difference]] = field(default_factory=dict)
    _heads: dict[TopicPartition, bytes] = field(default_factory=dict)
    _parts: dict[bytes, bytes] = field(default_factory=dict)
    """Slices, and where partitions stood in topics that they are not copied into any more."""

    def apply(self, rows: Iterable[Row]) -> None:
        """Takes in rows in order; a null value removes its key."""
        for key, value in rows:
            if key == LINK_KEY:
                self.initial, self.asked = read_initial(value), read_asked(value)
            elif key == _LEASE_KEY:
                self.lease.apply(value)
            elif key == MIRRORMAKER_KEY:
                self.mirrormaker = read_seen(value)
            elif key.startswith((b"control/", b"worker/")):
                self.changes[key] += self.notes.get(key) != value
                _put(self.notes, key, value)
            elif key.startswith((b"partition/", b"runs/", b"former/", _TRANSACTIONAL_ID)):
                self._apply_progress(key, value)
            else:
                self._apply_of_link(key, value)

    def _apply_of_link(self, key: bytes, value: bytes | None) -> None:
        """What is noted of topics and of the whole link."""
        if key.startswith(SETTINGS.encode()):
            self.settings[key.decode().partition("/")[2]] = read_settings(value)
        elif key.startswith(mirror_rows.PREFIX.encode()):
            self._apply_mirror(key.decode().partition("/")[2], value)
        elif key.startswith(group_rows.PREFIX.encode()):
            self._apply_group(key.decode().partition("/")[2], value)
        elif key.startswith(acl_store.PREFIXES):
            self._acls[key] = acl_store.read_row(value)
        elif key.startswith(acknowledgements.PREFIX.encode()):
            row = acknowledgements.read_row(key, value or b"")
            if row is not None:
                self.acknowledged[row[0]] = row[1]
        elif key.startswith(difference_rows.PREFIX.encode()):
            self._apply_difference(key, value)

    def _apply_difference(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            return
        try:
            found = difference_rows.read_row(key, value)
        except ValueError as error:
            _log.error("a difference on record cannot be read: %r: %s", key, error)
        else:
            self._differences.setdefault(found.tp, {})[key] = found

    def _apply_group(self, group: str, value: bytes | None) -> None:
        self.groups.pop(group, None)
        if value is not None:
            self.groups[group] = group_rows.read_row(value)

    def _apply_mirror(self, topic: str, value: bytes | None) -> None:
        mirror = mirror_rows.read_row(value) if value is not None else None
        self.mirrors.pop(topic, None)
        if mirror is not None:
            self.mirrors[topic] = mirror

    def _apply_progress(self, key: bytes, value: bytes | None) -> None:
        if key.startswith(b"partition/"):
            _, topic, partition = key.decode().split("/")
            self._apply_head(TopicPartition(topic, int(partition)), value)
        elif key.startswith(_TRANSACTIONAL_ID):
            name = key.removeprefix(_TRANSACTIONAL_ID).decode()
            self.transactional_ids.pop(name, None)
            if value is not None:
                self.transactional_ids[name] = value.decode()
                self.registrations[name] += 1
        else:
            _put(self._parts, key, value)

    def _apply_head(self, tp: TopicPartition, value: bytes | None) -> None:
        """A worker that has lost the partition may have its last word on its way: it counts for nothing."""
        epoch = epoch_of(value) if value is not None else None
        if epoch is not None:
            self.highest_epoch = max(self.highest_epoch, epoch)
            known = self._heads.get(tp)
            if known is not None and epoch < (epoch_of(known) or 0):
                self.overwritten.add(tp)
                return
        _put(self._heads, tp, value)

    def record(self, tp: TopicPartition) -> bytes | None:
        """Of one partition, to tell whether another has come since."""
        return self._heads.get(tp)

    def entry(self, tp: TopicPartition) -> Entry | None:
        """Of one partition."""
        head = self._heads.get(tp)
        return self._readable(tp, head) if head is not None else None

    def ledger(self, tp: TopicPartition) -> PartitionLedger | None:
        """Of one partition, to look at: read once for each record."""
        head = self._heads.get(tp)
        if head is None:
            return None
        known = self._ledgers.get(tp)
        if known is None or known[0] is not head:
            entry = self._readable(tp, head)
            if entry is None:
                return None
            known = self._ledgers[tp] = (head, entry.ledger)
        return known[1]

    def partitions(self) -> Set[TopicPartition]:
        """All that have progress."""
        return self._heads.keys()

    def of_mirror(self, tp: TopicPartition) -> Mapping[bytes, Difference]:
        """What the mirrors of one partition lack, by the row's key."""
        return self._differences.get(tp, {})

    def of_mirrors(self) -> Iterator[Difference]:
        """What any mirror lacks."""
        return (found for rows in self._differences.values() for found in rows.values())

    def acls(self) -> dict[Acl, Granted]:
        """What the link has granted at the target, and why."""
        return self._acls_under(acl_store.PREFIX)

    def withheld(self) -> dict[Acl, Granted]:
        """What the source's writers would get at the target."""
        return self._acls_under(acl_store.WITHHELD)

    def writers(self) -> dict[Acl, Granted]:
        """What of it was granted after a fail-over."""
        return self._acls_under(acl_store.WRITERS)

    def _acls_under(self, prefix: str) -> dict[Acl, Granted]:
        rows = (row for key, row in self._acls.items() if key.startswith(prefix.encode()))
        return {there: granted for row in rows for there, granted in row.items()}

    def entries(self) -> dict[TopicPartition, Entry]:
        """All partitions that can be read; a damaged record is left out, aloud."""
        found: dict[TopicPartition, Entry] = {}
        for tp, value in self._heads.items():
            entry = self._readable(tp, value)
            if entry is not None:
                found[tp] = entry
        return found

    def into(self, tp: TopicPartition, target_topic: str) -> Entry | None:
        """Where a partition stands in that topic of the target, if it was ever copied into it: a link whose
        names change and change back goes on there, and fills no topic a second time."""
        head = self._heads.get(tp)
        current = self._readable(tp, head) if head is not None else None
        if current is not None and current.ledger.target.topic == target_topic:
            return current
        former = self._parts.get(former_key(tp, target_topic))
        return self._readable(tp, former) if former is not None else None

    def _readable(self, tp: TopicPartition, value: bytes) -> Entry | None:
        try:
            return read_entry(value, self._parts)
        except (LedgerError, KeyError, TypeError, ValueError) as error:
            _log.error("progress of %s cannot be read, it starts anew: %r", tp, error)
            return None


def _put(rows: dict[K, bytes], key: K, value: bytes | None) -> None:
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = value


class ProgressStore:
    """The progress topic of one link."""

    def __init__(self, client: ClusterClient, topic: str, replication_factor: int = -1) -> None:
        self.name = topic
        self._topic = InternalTopic(
            client, topic, replication_factor=replication_factor, configs=_CONFIGS, must_keep=True
        )
        self._progress = Progress()
        self._reading = asyncio.Lock()  # rows count in the order of the log
        self.epoch = 0
        """Of the plan by which this worker has its partitions; a record of a lower one counts for nothing."""

    async def load(self) -> Progress:
        """Creates the topic if need be and reads it to its end; no less, or all would be copied again."""
        async with self._reading:
            await self._topic.ensure()
            self._progress.apply(await self._topic.read_new(must_exist=True))
        return self._progress

    async def refresh(self) -> Progress:
        """Reads what is new; a topic that does not exist is empty."""
        async with self._reading:
            self._progress.apply(await self._topic.read_new())
        return self._progress

    def open_transaction(self, tp: TopicPartition) -> tuple[int, int] | None:
        """Producer id and first offset of a transaction with progress of the partition and no marker yet, as
        last read: a coordinator answers once it has decided, and markers come later (KIP-98)."""
        return self._topic.open_transaction(head_key(tp))

    async def save(self, entries: Iterable[Entry]) -> None:
        """Stores entries; returns once acknowledged."""
        rows: list[Row] = []
        slices: list[tuple[Entry, int]] = []
        for entry in entries:
            new, sealed = rows_of(entry, self.epoch)
            rows += new
            slices.append((entry, sealed))
        await self._topic.append(rows)
        for entry, sealed in slices:
            entry.sealed = min(sealed, slices_kept(entry.ledger.runs))

    async def set_aside(self, entry: Entry) -> None:
        """Keeps where an entry stands in its topic of the target, before another topic takes its place."""
        await self._topic.append([former_row_of(entry)])

    def into(self, tp: TopicPartition, target_topic: str) -> Entry | None:
        """As last read (`Progress.into`)."""
        return self._progress.into(tp, target_topic)

    async def save_initial(self, initial: Mapping[TopicPartition, First], asked: Asked) -> None:
        """Notes, once and before anything is copied, where the first start begins."""
        await self._topic.append([initial_row_of(initial, asked)])

    async def save_seen(self, seen: Seen) -> None:
        """Notes what is known of MirrorMaker 2's progress."""
        await self._topic.append([seen_row_of(seen)])

    async def save_lease(self, lease: Lease, *, released: bool = False) -> None:
        """Claims, renews or gives up the link."""
        await self._topic.append([(_LEASE_KEY, replace(lease, released=released).encode())])

    async def save_settings(self, settings: Mapping[str, Mapping[str, str]]) -> None:
        """Notes what the link has set at the target, by source topic."""
        await self._topic.append([settings_row_of(*item) for item in settings.items()])

    async def save_mirrors(self, mirrors: Mapping[str, Mirror]) -> None:
        """Notes which mirrors are current, by source topic."""
        await self._topic.append([mirror_rows.row_of(*item) for item in mirrors.items()])

    def groups(self) -> Mapping[str, GroupNotes]:
        """What the link has set of groups, as last read and saved."""
        return self._progress.groups

    async def save_groups(self, notes: Mapping[str, GroupNotes | None]) -> None:
        """Notes what the link sets of groups; None forgets one."""
        await self._topic.append([group_rows.row_of(*item) for item in notes.items()])
        await self.refresh()

    async def save_acls(self, before: Mapping[Acl, Granted], after: Mapping[Acl, Granted]) -> None:
        """Notes what the link has granted at the target, and grants about to be made."""
        await self._topic.append(acl_store.rows_of(before, after))

    async def save_withheld(self, before: Mapping[Acl, Granted], after: Mapping[Acl, Granted]) -> None:
        """Notes what is withheld from writers."""
        await self._topic.append(acl_store.rows_of(before, after, acl_store.WITHHELD))

    async def save_writers(self, before: Mapping[Acl, Granted], after: Mapping[Acl, Granted]) -> None:
        """Notes what writers were granted after a fail-over."""
        await self._topic.append(acl_store.rows_of(before, after, acl_store.WRITERS))

    async def save_acknowledged(self, acknowledged: Acknowledged) -> None:
        """Notes who took note of which differences."""
        await self._topic.append([acknowledgements.row_of(*item) for item in acknowledged.items()])

    async def save_differences(self, found: Iterable[tuple[Difference, str]]) -> None:
        """Notes what mirrors lack, with the ids of the source's topics, and takes it in."""
        await self._topic.append([difference_rows.row_of(*item) for item in found])
        await self.refresh()

    async def save_transactional_id(self, name: str, owner: str) -> None:
        """Notes a producer that may have transactions open."""
        await self._topic.append([(_TRANSACTIONAL_ID + name.encode(), owner.encode())])

    async def forget_transactional_ids(self, names: Iterable[str]) -> None:
        """They have none open any more."""
        await self._topic.append([(_TRANSACTIONAL_ID + name.encode(), None) for name in names])

    def batches(self, rows: Sequence[Row]) -> list[bytes]:
        """Rows as batches that somebody else writes to this topic."""
        return batches_of(rows)

    async def save_notes(self, notes: Mapping[str, bytes | None]) -> None:
        """Stores rows of `control/…` and `worker/…`; None removes one."""
        await self._topic.append([(key.encode(), value) for key, value in notes.items()])

    @property
    def acknowledged(self) -> Acknowledged:
        """As last read."""
        return self._progress.acknowledged

    @property
    def progress(self) -> Progress:
        """As last read."""
        return self._progress

    @property
    def lease(self) -> LeaseView:
        """As last read."""
        return self._progress.lease

    @property
    def highest_epoch(self) -> int:
        """As last read."""
        return self._progress.highest_epoch

    def partitions(self) -> Set[TopicPartition]:
        """All that have progress, as last read."""
        return self._progress.partitions()


async def read_ledgers(client: ClusterClient, link: str) -> dict[TopicPartition, PartitionLedger]:
    """Ledgers of the link `source->target` by source partition; `client` is the target's."""
    source, _, target = link.partition("->")
    progress = await ProgressStore(client, progress_topic(source, target)).refresh()
    return {tp: entry.ledger for tp, entry in progress.entries().items()}
