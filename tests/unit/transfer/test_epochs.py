"""Leader epochs of what was read, and a reader that follows a log through any elections (KIP-101, 320)."""

import random
from dataclasses import dataclass, field

import pytest

from protocol.messages.fetch_response import EpochEndOffset, PartitionData
from protocol.records import Record, build_batch
from protocol.types import TopicPartition
from transfer.endpoint import Chunk, SourceFault
from transfer.epochs import Epochs
from transfer.kafka.positions import interpret
from transfer.kafka.reading import Reading

TP = TopicPartition("t", 0)


def test_a_log_parts_where_the_first_epoch_begins_that_the_other_has_not():
    epochs = Epochs([(1, 0), (3, 40), (4, 70)])
    assert epochs.common_end(4, 90) == 90
    assert epochs.common_end(3, 60) == 60
    assert epochs.common_end(3, 75) == 70
    assert epochs.common_end(2, 55) == 40
    assert epochs.common_end(0, 10) == 0
    assert Epochs().common_end(1, 10) == 10


def test_what_goes_back_has_epochs_of_before_only():
    epochs = Epochs([(1, 0), (3, 40), (4, 70)])
    assert epochs.before(70) == Epochs([(1, 0), (3, 40)])
    epochs.cut(40)
    assert (epochs, epochs.last) == (Epochs([(1, 0)]), 1)
    epochs.cut(0)
    assert (epochs, epochs.last) == (Epochs(), -1)


def test_an_epoch_counts_from_where_it_was_seen_first():
    epochs = Epochs()
    for epoch, position in [(2, 5), (2, 9), (-1, 12), (2, 15), (7, 20)]:
        epochs.reached(epoch, position)
    assert epochs.to_json() == [[2, 5], [7, 20]]
    epochs.reached(6, 30)
    assert epochs.to_json() == [[6, 30]]
    assert Epochs.from_json(epochs.to_json()) == epochs


def test_of_many_epochs_the_first_are_taken_together():
    epochs = Epochs()
    for epoch in range(40):
        epochs.reached(epoch, 10 * epoch)
    assert len(epochs.to_json()) == 16
    assert epochs.common_end(38, 1000) == 390
    assert epochs.common_end(3, 1000) == 0  # no later than where the fourth began


@dataclass
class Replica:
    """A log of one record each: leader epoch and value."""

    rows: list[tuple[int, int]] = field(default_factory=list)

    def end_of(self, epoch):
        """As OffsetsForLeaderEpoch: the latest epoch up to this one, and where it ends."""
        known = [at for at, _ in self.rows if at <= epoch]
        return (known[-1], len(known)) if known else (-1, -1)

    def follow(self, leader):
        """As a follower: back to where both logs part, epoch by epoch; then a copy."""
        same = 0
        for mine, theirs in zip(self.rows, leader.rows, strict=False):
            if mine != theirs:
                break
            same += 1
        self.rows[same:] = leader.rows[same:]

    def fetched(self, reading, most):
        """Its answer as a leader."""
        data = PartitionData(partition_index=0, high_watermark=len(self.rows))
        epoch, end = self.end_of(reading.last_epoch)
        if reading.last_epoch >= 0 and (epoch < reading.last_epoch or end < reading.position):
            data.diverging_epoch = EpochEndOffset(epoch=max(epoch, 0), end_offset=max(end, 0))
            return data
        rows = self.rows[reading.position : reading.position + most]
        data.records = memoryview(
            b"".join(
                build_batch([Record(0, 1, None, b"%d" % value)], base_offset=offset, leader_epoch=epoch)
                for offset, (epoch, value) in enumerate(rows, reading.position)
            )
        )
        return data


@dataclass
class Copy:
    """What a reader has taken over, with what it keeps of epochs."""

    rows: list[tuple[int, int]] = field(default_factory=list)
    reading: Reading = field(default_factory=lambda: Reading(TP, 0))
    faults: int = 0

    def read(self, leader, most=1000):
        reading = self.reading
        found = interpret(reading, leader.fetched(reading, most))
        if isinstance(found, SourceFault):
            self.faults += 1
            epochs = reading.epochs
            epochs.cut(found.resume_offset)
            del self.rows[found.resume_offset :]
            self.reading = Reading(TP, found.resume_offset, last_epoch=epochs.last, epochs=epochs)
        elif isinstance(found, Chunk):
            self.rows += leader.rows[found.first_offset : found.next_offset]

    def restart(self):
        reading = self.reading
        epochs = Epochs.from_json(reading.epochs.before(reading.position).to_json())
        self.reading = Reading(TP, reading.position, last_epoch=reading.last_epoch, epochs=epochs)


def test_an_old_replica_that_leads_after_another_had_led_does_not_hide_what_it_lacks():
    """Two unclean elections: the first leader leads again, and its log of epoch 1 is as long as ever."""
    first, second = Replica([(1, value) for value in range(10)]), Replica()
    second.rows = first.rows[:6]
    copy = Copy()
    copy.read(second)
    second.rows += [(2, 100), (2, 101)]
    copy.read(second)
    assert copy.rows == second.rows
    first.rows += [(3, 200)]
    for _ in range(3):
        copy.read(first)
    assert copy.rows == first.rows
    assert copy.faults == 1


@pytest.mark.parametrize("seed", range(300))
def test_a_reader_follows_any_elections(seed):
    """Three replicas, any of which may lead next, whatever it lacks; followers and the reader may miss as
    many terms as they like. In the end the copy is the leader's log."""
    chance = random.Random(seed)
    replicas, copy, value = [Replica() for _ in range(3)], Copy(), 0
    for epoch in range(1, chance.randint(2, 40)):
        leader = chance.choice(replicas)
        for _ in range(chance.randint(0, 6)):
            value += 1
            leader.rows.append((epoch, value))
            if chance.random() < 0.3:
                copy.read(leader, chance.randint(1, 3))
            if chance.random() < 0.2:
                copy.restart()
            if chance.random() < 0.3:
                chance.choice(replicas).follow(leader)
    leader.rows.append((epoch + 1, -1))
    for _ in range(200):
        copy.read(leader)
    assert copy.rows == leader.rows
