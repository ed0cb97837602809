"""Backups and restores that are interrupted, meet damage, or lose a broker or the object store on the way."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from connectors import catalogue
from connectors.backup import backup
from connectors.errors import BackupError, ConnectorError, RestoreError, RestoreRefused
from connectors.manifest import Manifest
from connectors.object_store import open_store
from connectors.restore import restore
from connectors.restores import latest_restore
from connectors.settings import Progress, Report
from protocol.client import ClusterClient, Committed
from protocol.errors import ProtocolError
from protocol.records import Record
from protocol.types import TopicPartition
from tests.cluster.links import content, create, fresh, produce, some
from tests.cluster.vault import Vault, new_vault
from tests.support.broker import BrokerProcess
from tests.support.proxy import LossyProxy
from tests.support.s3 import S3Server, VersityGateway

pytestmark = [pytest.mark.cluster, pytest.mark.s3]

T0 = 1_356_998_400_000


@pytest.mark.parametrize("kind", ["segment", "avro"])
async def test_an_interrupted_restore_goes_on_without_duplicates(
    broker: BrokerProcess,
    target: BrokerProcess,
    here: ClusterClient,
    there: ClusterClient,
    vault: Vault,
    kind: str,
) -> None:
    topic = fresh("long")
    await create(here, topic, 2)
    for n in range(40):
        await produce(here, topic, [Record(0, T0, b"%d" % n, b"x" * 20_000) for _ in range(25)], n % 2)
    await vault.backup(broker.bootstrap, topic, format=kind)
    settings = vault.restore_settings(target.bootstrap, partitions_at_once=1)
    for _ in range(2):
        await restore_until(settings, share=0.3)
    held = [len(await content(there, topic, partition)) for partition in range(2)]
    assert 0 < sum(held) < 1000
    report = await vault.restore(target.bootstrap)
    assert report.resumed
    assert (report.exit_code, report.records) == (0, 1000)
    for partition in range(2):
        assert await content(there, topic, partition) == await content(here, topic, partition)
    with pytest.raises(RestoreRefused, match="holds 1000 records"):
        await vault.restore(target.bootstrap)


async def restore_until(settings: object, share: float) -> None:
    """Runs a restore and cuts it off once so much is done."""
    from connectors.settings import RestoreSettings

    assert isinstance(settings, RestoreSettings)
    enough = asyncio.Event()

    def seen(progress: Progress) -> None:
        if progress.phase == "restore" and progress.done > progress.total * share:
            enough.set()

    running = asyncio.create_task(restore(settings, seen))
    async with asyncio.timeout(60):
        await enough.wait()
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled() or isinstance(running.exception(), ConnectorError | ProtocolError)


async def test_a_restore_waits_for_a_broker_that_comes_back(
    broker: BrokerProcess,
    here: ClusterClient,
    vault: Vault,
    zookeeper: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    topic = fresh("long")
    await create(here, topic)
    for n in range(40):
        await produce(here, topic, [Record(0, T0, b"%d" % n, b"x" * 20_000) for _ in range(25)])
    await vault.backup(broker.bootstrap, topic)
    other = BrokerProcess(tmp_path_factory.mktemp("other"), zookeeper, 1).start()
    try:
        half = asyncio.Event()

        def seen(progress: Progress) -> None:
            if progress.done > progress.total * 0.3:
                half.set()

        running = asyncio.create_task(restore(vault.restore_settings(other.bootstrap), seen))
        async with asyncio.timeout(60):
            await half.wait()
        other.kill()
        await asyncio.to_thread(other.start)
        report = await running
        assert (report.exit_code, report.records) == (0, 1000)
        async with ClusterClient(other.bootstrap) as there:
            assert await content(there, topic) == await content(here, topic)
    finally:
        other.kill()


async def test_a_damaged_object_is_never_restored_as_if_it_were_whole(
    broker: BrokerProcess, target: BrokerProcess, here: ClusterClient, there: ClusterClient, vault: Vault
) -> None:
    topic, group = fresh("damaged"), fresh("group")
    await create(here, topic, 2)
    for partition in range(2):
        await produce(here, topic, some(50), partition)
    await here.commit(group, {TopicPartition(topic, 0): Committed(5)})
    manifest = await vault.backup(broker.bootstrap, topic)
    entry = manifest.topics[0].partitions[1].objects[0]
    async with open_store(vault.store) as store:
        good = await store.get(entry.key)
        await store.put(entry.key, good[:-1] + bytes([good[-1] ^ 1]))
        assert (await catalogue.validate(store, manifest)).exit_code == 3
    with pytest.raises(RestoreError, match=f"{topic}-1") as broke:
        await vault.restore(target.bootstrap)
    assert f"Left at the target, where readers see it, records of each topic: {topic} 50 of 100" in str(
        broke.value
    )
    assert "not whole: partition 1)" in str(broke.value)
    assert len(await content(there, topic, 0)) == 50
    assert await there.committed(group) == {}
    async with open_store(vault.store) as store:
        with pytest.raises(BackupError, match=r"never fully restored.*50 of 100"):
            await latest_restore(store, "b1", there.cluster_id or "")
        await store.put(entry.key, good)
    report = await vault.restore(target.bootstrap)  # the same command goes on
    assert (report.exit_code, report.resumed, report.records) == (0, True, 100)


async def test_a_backup_that_broke_off_does_not_exist(
    broker: BrokerProcess, here: ClusterClient, vault: Vault
) -> None:
    topic = fresh("cut")
    await create(here, topic)
    for n in range(20):
        await produce(here, topic, [Record(0, T0, b"%d" % n, b"x" * 50_000) for _ in range(10)])
    started = asyncio.Event()

    def seen(progress: Progress) -> None:
        if progress.done:
            started.set()

    running = asyncio.create_task(
        backup(vault.backup_settings(broker.bootstrap, topic, object_bytes=100_000), seen)
    )
    async with asyncio.timeout(60):
        await started.wait()
    running.cancel()
    await asyncio.wait({running})
    async with open_store(vault.store) as store:
        assert await catalogue.list_backups(store) == []
    manifest = await vault.backup(broker.bootstrap, topic, object_bytes=100_000)
    assert (manifest.records, manifest.exit_code) == (200, 0)
    async with open_store(vault.store) as store:
        assert (await catalogue.validate(store, manifest)).damaged == ()


async def test_an_object_store_that_is_away_ends_a_backup_clearly(
    broker: BrokerProcess, here: ClusterClient, vault: Vault, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topic = fresh("t")
    await create(here, topic)
    await produce(here, topic, some(10))
    away = vault.store.model_copy(update={"endpoint": "http://127.0.0.1:9", "max_attempts": 1})
    with pytest.raises(ConnectorError, match=re.escape("http://127.0.0.1:9")):
        await Vault(away).backup(broker.bootstrap, topic)


async def test_two_backups_under_one_id_never_share_an_object(
    broker: BrokerProcess, target: BrokerProcess, vault: Vault
) -> None:
    """Both run at once over the same topic while it grows; one gets the id, and what it lists restores."""
    topic = fresh("twice")
    async with ClusterClient(broker.bootstrap) as client:
        await create(client, topic, 1)
        await produce(client, topic, some(200, 1))
    outcomes = await asyncio.gather(
        vault.backup(broker.bootstrap, topic, object_bytes=2000),
        vault.backup(broker.bootstrap, topic, object_bytes=3000),
        return_exceptions=True,
    )
    made = [each for each in outcomes if isinstance(each, Manifest)]
    refused = [each for each in outcomes if isinstance(each, ConnectorError)]
    assert (len(made), len(refused)) == (1, 1), outcomes
    async with open_store(vault.store) as store:
        stored = {info.key: info for info in await store.list("data/b1/")}
    listed = made[0].objects()
    assert all(stored[entry.key].size == entry.bytes for entry in listed)
    assert len({key.split("/")[2] for key in stored}) == 2, "each run has its own place"
    report = await vault.restore(target.bootstrap)
    assert report.exit_code == 0
    assert report.records == 200


def through(proxy: LossyProxy, vault: Vault) -> Vault:
    """The same bucket, reached through the proxy, by somebody who gives up soon."""
    endpoint = f"http://127.0.0.1:{proxy.port}"
    return Vault(vault.store.model_copy(update={"endpoint": endpoint, "max_attempts": 2}))


async def listed(vault: Vault) -> list[str]:
    """The ids in the catalogue; each must be whole."""
    async with open_store(vault.store) as store:
        entries = await catalogue.list_backups(store)
        for entry in entries:
            assert entry.manifest is not None, entry.problem
            assert (await catalogue.validate(store, entry.manifest)).damaged == ()
    return [entry.backup_id for entry in entries]


@pytest.mark.parametrize(
    ("object_bytes", "puts"), [(200_000, 5), (64 << 20, 2)], ids=["objects", "parts of one"]
)
async def test_an_object_store_lost_in_the_middle_of_a_backup_leaves_nothing_listed(
    broker: BrokerProcess, here: ClusterClient, s3: S3Server, vault: Vault, object_bytes: int, puts: int
) -> None:
    topic = fresh("cut-off")
    await create(here, topic)
    for n in range(60):
        await produce(here, topic, [Record(0, T0, b"%d" % n, b"x" * 20_000) for _ in range(12)])
    async with LossyProxy("127.0.0.1", s3.port) as proxy:
        away = through(proxy, vault)
        proxy.cut_at(puts, b"PUT /")
        with pytest.raises(ConnectorError, match=re.escape(away.store.endpoint or "")):
            await away.backup(broker.bootstrap, topic, object_bytes=object_bytes, part_bytes=5 << 20)
        assert await listed(vault) == []
        proxy.mend()
        manifest = await away.backup(broker.bootstrap, topic, object_bytes=object_bytes)  # the same id
    assert (manifest.records, manifest.exit_code) == (720, 0)
    assert await listed(vault) == ["b1"]


async def test_an_object_store_lost_in_the_middle_of_a_restore_says_what_is_left_and_goes_on(
    broker: BrokerProcess,
    target: BrokerProcess,
    here: ClusterClient,
    there: ClusterClient,
    s3: S3Server,
    vault: Vault,
) -> None:
    topic = fresh("cut-off")
    await create(here, topic)
    for n in range(60):
        await produce(here, topic, [Record(0, T0, b"%d" % n, b"x" * 20_000) for _ in range(12)])
    await vault.backup(broker.bootstrap, topic, object_bytes=500_000)
    async with LossyProxy("127.0.0.1", s3.port) as proxy:
        away = through(proxy, vault)
        proxy.cut_at(20, b".segment")
        with pytest.raises(
            RestoreError, match=f"broke off.*records of each topic: {topic} [1-9][0-9]* of 720"
        ):
            await away.restore(target.bootstrap)
        proxy.mend()
        report = await away.restore(target.bootstrap)
    assert (report.exit_code, report.resumed, report.records) == (0, True, 720)
    assert await content(there, topic) == await content(here, topic)


async def test_a_lost_answer_to_the_last_write_is_not_a_taken_id(
    broker: BrokerProcess, here: ClusterClient, s3: S3Server, vault: Vault
) -> None:
    topic = fresh("answer")
    await create(here, topic)
    await produce(here, topic, some(10))
    async with LossyProxy("127.0.0.1", s3.port) as proxy:
        proxy.lose_answer_to(b"catalogue/b1.json HTTP/1.1")
        manifest = await through(proxy, vault).backup(broker.bootstrap, topic)
    assert manifest.records == 10
    assert await listed(vault) == ["b1"]


async def killed_during(
    gateway: VersityGateway, work: Callable[[Report], Coroutine[Any, Any, object]]
) -> BaseException | None:
    """Runs the work, kills the store once a fifth of it is done, and gives what it raised."""
    enough = asyncio.Event()

    def seen(progress: Progress) -> None:
        if progress.done > progress.total * 0.2:
            enough.set()

    running = asyncio.create_task(work(seen))
    async with asyncio.timeout(60):
        await enough.wait()
    gateway.kill()
    await asyncio.wait({running})
    return running.exception()


@pytest.mark.interop
async def test_a_killed_object_store_that_comes_back_lists_only_whole_backups(
    broker: BrokerProcess, target: BrokerProcess, here: ClusterClient, there: ClusterClient, tmp_path: Path
) -> None:
    """versitygw keeps its objects on disk: SIGKILL in the middle of a backup, and of a restore."""
    topic = fresh("killed")
    await create(here, topic)
    for n in range(60):
        await produce(here, topic, [Record(0, T0, b"%d" % n, b"x" * 20_000) for _ in range(12)])
    with VersityGateway(tmp_path) as gateway:
        store = new_vault(gateway).store.model_copy(update={"max_attempts": 2})
        vault = Vault(store)
        settings = vault.backup_settings(broker.bootstrap, topic, object_bytes=200_000)
        lost = await killed_during(gateway, partial(backup, settings))
        assert isinstance(lost, ConnectorError), lost
        gateway.start()
        assert await listed(vault) == []
        manifest = await vault.backup(broker.bootstrap, topic, object_bytes=200_000)
        assert (manifest.records, manifest.exit_code) == (720, 0)
        assert await listed(vault) == ["b1"]
        broken = await killed_during(gateway, partial(restore, vault.restore_settings(target.bootstrap)))
        assert isinstance(broken, RestoreError), broken
        assert "Left at the target" in str(broken)
        gateway.start()
        report = await vault.restore(target.bootstrap)
    assert (report.exit_code, report.resumed, report.records) == (0, True, 720)
    assert await content(there, topic) == await content(here, topic)
