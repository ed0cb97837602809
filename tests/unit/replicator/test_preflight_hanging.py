"""Which transactions hang: by what leaders and coordinators say, one after the other."""

import time
from types import SimpleNamespace

import pytest

from protocol.client import ListedOffset, NotSupportedError
from protocol.errors import ErrorCode
from protocol.types import TopicPartition
from replicator.hanging import Hanging
from replicator.preflight.facts import Rights, Side
from replicator.preflight.findings import Level
from replicator.preflight.hanging import ask_hanging, hanging_transactions
from tests.unit.replicator.test_preflight import facts, topic

TP = TopicPartition("orders", 0)


class Cluster:
    """One broker. `looks`: (producer, start) that the leader says are open, look by look; `known`: by
    transactional id, its producer and whether its coordinator has still to write to the partition."""

    def __init__(self, *looks, known=(), code=0, old=False):
        self.looks = list(looks)
        self.known = dict(known)
        self.code = code
        self.old = old

    async def list_offsets(self, spots, *, isolation, **_):
        return {tp: ListedOffset(0 if isolation else 9, -1, -1) for tp in spots}

    async def spread_once(self, items, call):
        return await call(1, items)

    async def send_to(self, node, request, **_):
        if self.old:
            raise NotSupportedError("DescribeProducers")
        return getattr(self, "_" + type(request).__name__)(request)

    def _DescribeProducersRequest(self, _):
        rows = [
            SimpleNamespace(producer_id=producer, current_txn_start_offset=start, last_timestamp=5)
            for producer, start in self.looks.pop(0)
        ]
        partition = SimpleNamespace(partition_index=0, error_code=0, active_producers=rows)
        return SimpleNamespace(topics=[SimpleNamespace(name="orders", partitions=[partition])])

    def _ListTransactionsRequest(self, request):
        rows = [
            SimpleNamespace(transactional_id=name, producer_id=producer)
            for name, (producer, _) in self.known.items()
            if producer in request.producer_id_filters
        ]
        return SimpleNamespace(error_code=self.code, transaction_states=rows)

    def _DescribeTransactionsRequest(self, request):
        return SimpleNamespace(
            transaction_states=[
                SimpleNamespace(
                    error_code=0,
                    producer_id=self.known[name][0],
                    topics=[SimpleNamespace(topic="orders", partitions=[0])] if self.known[name][1] else [],
                )
                for name in request.transactional_ids
            ]
        )


async def asked(cluster):
    side = Side("east", brokers={1: None}, topics={"orders": SimpleNamespace(partitions={0: None})})
    await ask_hanging(cluster, side, ["orders", "not there"])
    return side


@pytest.mark.parametrize(
    ("looks", "known", "expected"),
    [
        ([[]], {}, []),
        ([[(7, 3)], [(7, 3)]], {}, [Hanging(TP, 3, 7, "", 5)]),
        ([[(7, 3)], [(7, 3)]], {"a": (7, False)}, [Hanging(TP, 3, 7, "a", 5)]),
        ([[(7, 3)], []], {"a": (7, True)}, []),
        # it has ended, or ended and begun anew, while the coordinator was asked
        ([[(7, 3)], []], {"a": (7, False)}, []),
        ([[(7, 3)], [(7, 8)]], {"a": (7, False)}, []),
        ([[(7, 3), (8, 4)], [(8, 4), (7, 3)]], {"a": (7, True)}, [Hanging(TP, 4, 8, "", 5)]),
    ],
)
async def test_it_is_open_its_coordinator_is_done_with_it_and_it_is_still_open(looks, known, expected):
    side = await asked(Cluster(*looks, [], known=known))
    assert (side.hanging, side.refused) == (expected, {})


async def test_what_is_not_known_is_no_finding():
    side = await asked(Cluster([(7, 3)], [(7, 3)], code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert side.hanging == []
    assert "COORDINATOR_LOAD_IN_PROGRESS" in side.refused["which transactions hang"]
    side = await asked(Cluster(old=True))
    assert (side.hanging, side.refused) == ([], {})


def test_each_is_told_with_the_command_that_ends_it_and_many_are_counted():
    told = facts()
    told.source.hanging = [Hanging(TP, n, 7, "a" if n else "", 5) for n in range(12)]
    found = list(hanging_transactions(told))
    assert [one.level for one in found] == [Level.WARNING, *[Level.ERROR] * 10]
    assert "abort --topic orders --partition 0 --start-offset 3." in found[3].to_do
    assert found[-1].subjects == ("orders-0 from 10", "orders-0 from 11")


@pytest.mark.parametrize(
    ("rights", "age_ms", "count"),
    [(Rights(-1), 0, 1), (Rights(0), 0, 0), (Rights(), 0, 0), (Rights(0), 70_000, 1), (Rights(0), 50_000, 0)],
)
def test_one_that_no_coordinator_shows_may_be_somebodys_whom_this_user_may_not_see(rights, age_ms, count):
    told = facts()
    told.source.cluster_rights = rights
    told.source.defaults = {"transaction.max.timeout.ms": "60000"}
    told.source.hanging = [Hanging(TP, 3, 7, "", time.time_ns() // 1_000_000 - age_ms)]
    assert len(list(hanging_transactions(told))) == count


@pytest.mark.parametrize(("copies", "brokers", "levels"), [(1, 2, [Level.WARNING]), (1, 1, []), (3, 3, [])])
def test_one_replica_of_the_transactions_where_there_are_more_brokers_is_told(copies, brokers, levels):
    told = facts()
    told.source.topics = {
        **told.source.topics,
        "__transaction_state": topic("__transaction_state", 5, copies),
    }
    told.source.brokers = dict.fromkeys(range(brokers))
    assert [one.level for one in hanging_transactions(told)] == levels
