"""Several workers of one link as real processes: they share it, come, go, are killed and stopped."""

import asyncio
import os
import signal
import sys
import time

import pytest

from protocol.client import ClusterClient
from protocol.types import TopicPartition
from replicator.progress import ProgressStore
from replicator.settings import LinkSettings
from replicator.workers.report import Standing, WorkerReport, reports
from tests.cluster.links import LinkProcess, Pair, create, eventually, fresh, records
from tests.support.broker import BrokerProcess
from tests.support.numbered import NumberedProducer, Verdict, judge, together
from tests.support.zookeeper import fresh_chroot

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PARTITIONS = 9


@pytest.fixture(scope="module")
def pair(zookeeper_server, tmp_path_factory):
    made = [
        BrokerProcess(
            tmp_path_factory.mktemp(name),
            fresh_chroot(zookeeper_server),
            1,
            settings={"group.min.session.timeout.ms": "1000", "offsets.topic.num.partitions": "2"},
        )
        for name in ("east", "west")
    ]
    try:
        for broker in made:
            broker.start()
        yield Pair("isthmus", *(broker.bootstrap for broker in made))
    finally:
        for broker in made:
            broker.kill()


class Workers:
    """Processes of one link, and what they say of themselves in the target cluster."""

    def __init__(self, link: LinkSettings, client: ClusterClient, folder) -> None:
        self._link, self._client, self._folder = link, client, folder
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
        return {one.pid: one for one in reports(notes) if one.fresh()}

    async def share(self, pids: set[int], partitions: int = PARTITIONS, timeout_s: float = 60) -> None:
        """Waits until exactly these have all partitions running, each its own, and each has some."""
        last: dict[int, WorkerReport] = {}

        async def shared() -> bool:
            nonlocal last
            last = {pid: one for pid, one in (await self.reports()).items() if one.partitions}
            states = [one.state for report in last.values() for one in report.partitions.values()]
            return last.keys() == pids and states == ["running"] * partitions

        try:
            await eventually(shared, f"{pids} share {partitions} partitions", timeout_s)
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


async def test_workers_share_a_link_and_only_what_one_had_moves_when_it_is_killed(pair, tmp_path):
    """Three workers, one killed, one more, all of them replaced in turn: nothing is lost or out of order, and
    a partition that need not move is never begun again."""
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
            await workers.share({first, second, third})
            before = await workers.standings()
            assert sorted(len(r.partitions) for r in (await workers.reports()).values()) == [3, 3, 3]

            await workers.processes[second].kill()
            await workers.share({first, third})
            after = await workers.standings()
            kept = {tp for tp, (pid, _) in before.items() if pid != second}
            assert {tp: (after[tp][0], after[tp][1].starts) for tp in kept} == {
                tp: (before[tp][0], before[tp][1].starts) for tp in kept
            }

            fourth = await workers.start()
            await workers.share({first, third, fourth})
            for old in (first, third, fourth):
                new = await workers.start()
                await workers.share(workers.living())
                assert await workers.processes[old].stop() == 0
                await workers.share(workers.living())
                assert new in (await workers.reports())
        finally:
            producer.stop()
            try:
                assert not producer.failed
                found = await verdict(west, f"{link.source.alias}.{topic}", producer.acknowledged)
            finally:
                await workers.kill_all()
        _say(f"acknowledged {sum(producer.acknowledged)}, {found}")
        assert (found.lost, found.reordered, found.duplicates) == (0, 0, 0)


@pytest.mark.skipif(os.environ.get("ISTHMUS_SLOW") != "1", reason="takes half a minute: set ISTHMUS_SLOW=1")
async def test_a_worker_that_was_stopped_for_long_writes_nothing_when_it_wakes_up(pair, tmp_path):
    """Others have its partitions by then. What it had on its way is known by its sequence numbers."""
    topic = fresh("stopped")
    link = pair.link(topic, worker_session_timeout_s=3, heartbeats_replication=False)
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await create(east, topic, PARTITIONS)
        workers = Workers(link, west, tmp_path)
        producer = NumberedProducer(pair.east, topic, PARTITIONS, per_second=9000)
        producer.start()
        try:
            pids = {await workers.start() for _ in range(3)}
            await workers.share(pids)
            for sleeper in sorted(pids):
                before = await workers.standings()
                workers.processes[sleeper].signal(signal.SIGSTOP)
                await workers.share(pids - {sleeper})
                after = await workers.standings()
                kept = {tp for tp, (pid, _) in before.items() if pid != sleeper}
                assert {tp: after[tp][0] for tp in kept} == {tp: before[tp][0] for tp in kept}
                assert {tp: after[tp][1].starts for tp in kept} == {tp: before[tp][1].starts for tp in kept}
                workers.processes[sleeper].signal(signal.SIGCONT)
                await workers.share(pids)
        finally:
            producer.stop()
            try:
                found = await verdict(west, f"{link.source.alias}.{topic}", producer.acknowledged)
            finally:
                await workers.kill_all()
        _say(f"acknowledged {sum(producer.acknowledged)}, {found}")
        assert not producer.failed
        assert (found.lost, found.reordered, found.duplicates) == (0, 0, 0)
