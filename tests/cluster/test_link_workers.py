"""Several workers of one link as real processes: they share it, come, go, are killed and stopped."""

import asyncio
import signal
import sys
import time
from contextlib import ExitStack

import pytest

from protocol.client import ClusterClient
from protocol.records import Record
from protocol.types import TopicPartition
from replicator.progress import ProgressStore
from replicator.settings import LinkSettings
from replicator.workers.listening import Hearing
from replicator.workers.report import Standing, WorkerReport, reports
from tests.cluster.links import LinkProcess, Pair, create, eventually, fresh, produce, records
from tests.support.apache_kafka import apache_kafka
from tests.support.broker import BrokerProcess
from tests.support.numbered import NumberedProducer, Verdict, judge, together
from tests.support.slow import slow
from tests.support.zookeeper import fresh_chroot

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PARTITIONS = 9
APACHE = (
    "group.min.session.timeout.ms=1000",
    "offsets.topic.num.partitions=2",
    "offsets.topic.replication.factor=1",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
)


@pytest.fixture(
    scope="module",
    params=["isthmus", pytest.param("apache", marks=[pytest.mark.interop, slow("with Apache Kafka")])],
)
def pair(request, zookeeper_server, tmp_path_factory):
    """East is ours; the workers' group is at west, which is ours or Apache Kafka's."""
    settings = {"group.min.session.timeout.ms": "1000", "offsets.topic.num.partitions": "2"}
    with ExitStack() as stack:
        brokers = []
        for name in ("east", "west")[: 1 if request.param == "apache" else 2]:
            folder = tmp_path_factory.mktemp(name)
            broker = BrokerProcess(folder, fresh_chroot(zookeeper_server), 1, settings=settings)
            stack.callback(broker.kill)
            broker.start()
            brokers.append(broker.bootstrap)
        if request.param == "apache":
            brokers.append(stack.enter_context(apache_kafka("link-workers", *APACHE)))
        yield Pair(request.param, *brokers)


class Workers:
    """Processes of one link, and what they say of themselves in the target cluster."""

    def __init__(self, link: LinkSettings, client: ClusterClient, folder) -> None:
        self._link, self._client, self._folder = link, client, folder
        self._hearing = Hearing()
        self._store = ProgressStore(client, link.progress_topic)
        self.processes: dict[int, LinkProcess] = {}

    async def start(self) -> int:
        """Its process number."""
        process = LinkProcess(self._link, str(self._folder / f"worker-{len(self.processes)}.log"))
        await process.start()
        assert process.pid
        self.processes[process.pid] = process
        return process.pid

    def living(self) -> set[int]:
        return {pid for pid, process in self.processes.items() if process.lives}

    async def kill_all(self) -> None:
        for process in self.processes.values():
            await process.kill()

    async def reports(self) -> dict[int, WorkerReport]:
        notes = (await self._store.refresh()).notes
        return {one.pid: one for one in self._hearing.judged(reports(notes)) if not one.silent}

    async def share(self, pids: set[int], each: list[int] | None = None, timeout_s: float = 90) -> None:
        """Waits until exactly these have all partitions running, each its own, and each has some; with `each`
        so many."""
        last: dict[int, WorkerReport] = {}

        async def shared() -> bool:
            nonlocal last
            last = {pid: one for pid, one in (await self.reports()).items() if one.partitions}
            states = [one.state for report in last.values() for one in report.partitions.values()]
            sizes = sorted(len(one.partitions) for one in last.values())
            level = each is None or sizes == each
            return last.keys() == pids and states == ["running"] * PARTITIONS and level

        try:
            await eventually(shared, f"{pids} share {PARTITIONS} partitions", timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}: {last}") from error

    async def standings(self) -> dict[TopicPartition, tuple[int, Standing]]:
        return {
            tp: (pid, one) for pid, r in (await self.reports()).items() for tp, one in r.partitions.items()
        }


async def verdict(client: ClusterClient, topic: str, wanted: list[int]) -> Verdict:
    """Waits until everything has arrived, or nothing does any more."""

    async def look() -> Verdict:
        return together(
            [
                judge(count, [int(one.value or b"-1") for one in await records(client, topic, partition)])
                for partition, count in enumerate(wanted)
            ]
        )

    end = time.monotonic() + 60
    while (found := await look()).lost and time.monotonic() < end:
        await asyncio.sleep(0.5)
    return found


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


@pytest.mark.timeout(600)
async def test_workers_share_a_link_and_only_what_one_had_moves_when_it_is_killed(pair, tmp_path):
    """Three workers, one killed, one more: nothing is lost, repeated or out of order, and a partition that
    need not move is not begun again."""
    topic = fresh("shared")
    link = pair.link(topic, worker_session_timeout_s=6, heartbeats_replication=False)
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await create(east, topic, PARTITIONS)
        workers = Workers(link, west, tmp_path)
        producer = NumberedProducer(pair.east, topic, PARTITIONS, per_second=900)
        producer.start()
        try:
            first = await workers.start()
            await workers.share({first})
            second, third = await workers.start(), await workers.start()
            await workers.share({first, second, third}, [3, 3, 3])
            before = await workers.standings()

            await workers.processes[second].kill()
            await workers.share({first, third})
            after = await workers.standings()
            kept = {tp for tp, (pid, _) in before.items() if pid != second}
            assert {tp: (after[tp][0], after[tp][1].starts) for tp in kept} == {
                tp: (before[tp][0], before[tp][1].starts) for tp in kept
            }

            fourth = await workers.start()
            await workers.share({first, third, fourth})
        finally:
            producer.stop()
            try:
                assert not producer.failed
                found = await verdict(west, f"{link.source.alias}.{topic}", producer.acknowledged)
            finally:
                await workers.kill_all()
        _say(f"acknowledged {sum(producer.acknowledged)}, {found}")
        assert (found.lost, found.reordered, found.duplicates) == (0, 0, 0)


@pytest.mark.timeout(900)
@slow("some minutes of stops")
async def test_a_worker_that_was_stopped_for_long_writes_nothing_when_it_wakes_up(pair, tmp_path):
    """Others have its partitions by then. What it had on its way is known by its sequence numbers."""
    topic = fresh("stopped")
    link = pair.link(topic, worker_session_timeout_s=6, heartbeats_replication=False)
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await create(east, topic, PARTITIONS)
        workers = Workers(link, west, tmp_path)
        producer = NumberedProducer(pair.east, topic, PARTITIONS, per_second=9000)
        producer.start()
        try:
            pids = {await workers.start() for _ in range(3)}
            await workers.share(pids, [3, 3, 3])
            for sleeper in sorted(pids):
                before = await workers.standings()
                workers.processes[sleeper].signal(signal.SIGSTOP)
                await workers.share(pids - {sleeper})
                after = await workers.standings()
                kept = {tp for tp, (pid, _) in before.items() if pid != sleeper}
                assert {tp: after[tp][0] for tp in kept} == {tp: before[tp][0] for tp in kept}
                assert {tp: after[tp][1].starts for tp in kept} == {tp: before[tp][1].starts for tp in kept}
                workers.processes[sleeper].signal(signal.SIGCONT)
                await workers.share(pids, [3, 3, 3])
            for old in sorted(pids):  # all are replaced, one by one, as for a new version
                await workers.start()
                await workers.share(workers.living())
                assert await workers.processes[old].stop() == 0
                await workers.share(workers.living())
        finally:
            producer.stop()
            try:
                found = await verdict(west, f"{link.source.alias}.{topic}", producer.acknowledged)
            finally:
                await workers.kill_all()
        _say(f"acknowledged {sum(producer.acknowledged)}, {found}")
        assert not producer.failed
        assert (found.lost, found.reordered, found.duplicates) == (0, 0, 0)


@pytest.mark.parametrize("early", [True, False], ids=["under-a-claim", "in-the-group"])
async def test_a_worker_whose_file_names_another_source_cluster_ends_and_copies_nothing(
    pair, tmp_path, early
):
    """One wrong address on one host: the link of the others goes on, and nothing is booked as a gap."""
    topic = fresh("other-source")
    link = pair.link(topic, worker_session_timeout_s=6, heartbeats_replication=False)
    wrong = link.model_copy(update={"source": link.source.model_copy(update={"bootstrap": pair.west})})
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await create(east, topic, PARTITIONS)
        await create(west, topic, PARTITIONS)
        await produce(west, topic, [Record(0, 0, None, b"of west")])
        workers = Workers(link, west, tmp_path)
        other = LinkProcess(wrong, str(tmp_path / "other.log"))
        try:
            first = await workers.start()
            await workers.share({first})
            if not early:
                await eventually(lambda: _in_group(west, link), "a member of the group")
            await other.start()
            assert await other.ended() == 1
            await workers.share({first})
            await produce(east, topic, [Record(0, 0, None, b"of east")])

            async def arrived() -> bool:
                return len(await records(west, f"{link.source.alias}.{topic}", 0)) > 0

            await eventually(arrived, "the record at the target")
            assert await workers.processes[first].stop() == 0
            found = await records(west, f"{link.source.alias}.{topic}", 0)
            assert [one.value for one in found] == [b"of east"]
        finally:
            await other.kill()
            await workers.kill_all()
        said = (tmp_path / "other.log").read_text()
        assert "its other workers copy from cluster" in said
        assert "Traceback" not in said


async def _in_group(client: ClusterClient, link: LinkSettings) -> bool:
    group = (await client.describe_groups([link.workers_group]))[link.workers_group]
    return len(group.members) == 1
