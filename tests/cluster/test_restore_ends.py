"""The end of a restore: what retention will take is told, and what ends it half-way loses nothing."""

from typing import Any

import pytest

from connectors import restore as restoring
from connectors.errors import ObjectStoreError, RestoreError
from protocol.client import ClusterClient, Committed
from protocol.types import TopicPartition
from tests.cluster.links import create, fresh, produce, some
from tests.cluster.vault import Vault
from tests.support.broker import BrokerProcess

pytestmark = [pytest.mark.cluster, pytest.mark.s3]

T0 = 1_356_998_400_000


@pytest.mark.parametrize("policy", ["delete", "compact"])
async def test_records_that_the_targets_own_retention_will_take_are_told(
    broker: BrokerProcess, target: BrokerProcess, here: ClusterClient, vault: Vault, policy: str
) -> None:
    topic = fresh("old")
    await create(here, topic, cleanup_policy=policy)
    await produce(here, topic, some(30, time_ms=T0))
    await vault.backup(broker.bootstrap, topic)
    report = await vault.restore(target.bootstrap)
    assert report.exit_code == 0
    told = [f"{topic}: 30 records are older than retention.ms=3600000"] if policy == "delete" else []
    assert [text[: len(told[0])] for text in report.warnings] == told


async def test_a_restore_that_ends_after_its_topics_have_their_settings_goes_on(
    broker: BrokerProcess,
    target: BrokerProcess,
    here: ClusterClient,
    there: ClusterClient,
    vault: Vault,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Readers and writers may have begun by then: what was counted counts."""
    topic, group = fresh("late"), fresh("group")
    await create(here, topic)
    await produce(here, topic, some(30))
    await here.commit(group, {TopicPartition(topic, 0): Committed(12)})
    await vault.backup(broker.bootstrap, topic)

    async def away(*_: Any) -> None:
        raise ObjectStoreError("write", "s3://bucket/key", "SlowDown")

    with monkeypatch.context() as patch:
        patch.setattr(restoring, "restore_group", away)
        with pytest.raises(RestoreError, match="SlowDown"):
            await vault.restore(target.bootstrap)
    await produce(there, topic, some(3))
    await there.delete_records({TopicPartition(topic, 0): 5})
    report = await vault.restore(target.bootstrap)
    assert (report.exit_code, report.records, report.resumed) == (0, 30, True)
    assert (await there.committed(group))[TopicPartition(topic, 0)].offset == 12
