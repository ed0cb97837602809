"""How a mirror's log is made fit for producers of its own cluster.

What the source's producers have open here nobody will ever end: the coordinator that could is another
cluster's. So each gets the abort marker that Kafka's coordinator would write, and then a control batch ends
all that is remembered of producers: their ids mean others here, whose first batches would be taken for
repeats and acknowledged without being stored. Once in a term is enough. A log without a record gets it, too:
it may remember producers of what it has let go of, and from then on it takes nothing from its source.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.coordinator.transactions.markers import Ending, marker_batch
from broker.log import Origin
from broker.log.markers import producers_end_batch
from broker.replication import Partition


class Ended(NamedTuple):
    aborted: int
    last_offset: int


def end_mirror(partition: Partition, now_ms: int) -> Ended:
    """Append the markers and the end of producers. Raises KafkaError, `AppendRefused`."""
    log = partition.log
    opened = log.producers.open_transactions()
    for producer in opened:
        ending = Ending(producer.producer_id, producer.epoch, False, max(producer.coordinator_epoch, 0))
        marker = memoryview(bytearray(marker_batch(ending, now_ms)))
        partition.append(marker, all_replicas=True, origin=Origin.COORDINATOR)
    ended = not len(log.producers) and log.epochs.latest == partition.leader_epoch
    if not ended:
        batch = memoryview(producers_end_batch(now_ms))
        partition.append(batch, all_replicas=True, origin=Origin.COORDINATOR)
    return Ended(len(opened), log.end_offset - 1)
