"""A backup holds all that can be had: beside leaderless partitions, and of topics that grow meanwhile."""

from collections.abc import Mapping
from typing import Any

import pytest

from connectors import backup as backing_up
from connectors.group_offsets import snapshot_groups
from connectors.restore_report import RestoreReport
from protocol.client import ClusterClient, Committed, ListedOffset
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition
from tests.cluster.links import content, create, fresh, produce, some
from tests.cluster.vault import Vault
from tests.support.broker import BrokerProcess

pytestmark = [pytest.mark.cluster, pytest.mark.s3]


async def test_a_partition_without_a_leader_does_not_keep_the_others_out(
    broker: BrokerProcess,
    target: BrokerProcess,
    here: ClusterClient,
    there: ClusterClient,
    vault: Vault,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = fresh("half")
    await create(here, topic, 3)
    for partition in range(3):
        await produce(here, topic, some(10), partition)
    dead = TopicPartition(topic, 1)
    ask = ClusterClient.list_offsets

    async def asked(
        self: ClusterClient, spots: Mapping[TopicPartition, int], **options: Any
    ) -> Mapping[TopicPartition, ListedOffset]:
        if dead in spots:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{dead}")
        return await ask(self, spots, **options)

    with monkeypatch.context() as patch:
        patch.setattr(ClusterClient, "list_offsets", asked)
        manifest = await vault.backup(broker.bootstrap, topic)
    assert (manifest.records, manifest.exit_code) == (20, 3)
    assert any(f"{topic}-1: nothing of it is in this backup" in problem for problem in manifest.problems)
    report: RestoreReport = await vault.restore(target.bootstrap)
    assert (report.records, report.exit_code) == (20, 3)
    assert await content(there, topic, 2) == await content(here, topic, 2)
    assert await content(there, topic, 1) == []


async def test_offsets_of_a_partition_that_is_just_made_come_with_the_partition(
    broker: BrokerProcess, here: ClusterClient, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, group = fresh("grows"), fresh("group")
    await create(here, topic)
    await produce(here, topic, some(5))

    async def grown_first(*arguments: Any) -> Any:
        await here.create_partitions({topic: 2})
        await produce(here, topic, some(7), 1)
        await here.commit(group, {TopicPartition(topic, 1): Committed(7)})
        return await snapshot_groups(*arguments)

    monkeypatch.setattr(backing_up, "snapshot_groups", grown_first)
    manifest = await vault.backup(broker.bootstrap, topic)
    (held,) = [each for each in manifest.groups if each.group == group]
    assert [(each.partition, each.offset) for each in held.offsets] == [(1, 7)]
    assert manifest.partition(TopicPartition(topic, 1)).end_offset == 7
