"""What stands behind an open transaction is not in a backup, which says so by itself."""

import asyncio
import json
import time

import pytest
from confluent_kafka import Producer

from connectors.manifest import HeldUp
from isthmus.commands import backup as command
from protocol.client import ClusterClient
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition
from tests.cluster.links import create, fresh, produce, some
from tests.cluster.vault import Vault
from tests.support.broker import BrokerProcess
from tests.support.transactions import producer

pytestmark = [pytest.mark.cluster, pytest.mark.s3]

HOUR_MS = 3_600_000


def write(made: Producer, topic: str, partition: int, timestamp_ms: int) -> None:
    made.begin_transaction()
    made.produce(topic, b"open", partition=partition, timestamp=timestamp_ms)
    assert made.flush(30) == 0


@pytest.mark.parametrize(("age_ms", "exit_code"), [(10_000, 0), (HOUR_MS, 3)])
async def test_records_behind_an_open_transaction_are_counted(
    broker: BrokerProcess,
    target: BrokerProcess,
    here: ClusterClient,
    vault: Vault,
    capsys: pytest.CaptureFixture[str],
    age_ms: int,
    exit_code: int,
) -> None:
    topic = fresh("held")
    await create(here, topic, 2)
    await produce(here, topic, some(4))
    await produce(here, topic, some(3), 1)
    began_ms = int(time.time() * 1000) - age_ms
    opened = await asyncio.to_thread(producer, broker.bootstrap, topic)
    await asyncio.to_thread(write, opened, topic, 0, began_ms)
    await produce(here, topic, some(5))  # acknowledged, and not to be had while that one is open

    manifest = await vault.backup(broker.bootstrap, topic)
    held = manifest.partition(TopicPartition(topic, 0)).held_up
    assert held is not None
    assert (held.offsets, held.since_ms) == (6, began_ms)
    assert held.producer_id is not None
    assert manifest.partition(TopicPartition(topic, 1)).held_up is None
    assert (manifest.records, manifest.exit_code) == (7, exit_code)
    assert bool(manifest.problems) == bool(exit_code)
    report = await vault.restore(target.bootstrap)
    said = (
        f"{topic}-0: 6 offsets from 4 on are not in the backup: a transaction of producer {held.producer_id}"
    )
    assert any(said in text for text in (*report.warnings, *report.problems))

    command._show(manifest, as_json=True)
    (row,) = json.loads(capsys.readouterr().out)["held_up"]
    assert row == {
        "topic": topic,
        "partition": 0,
        "from_offset": 4,
        "offsets": 6,
        "since": command.shown(began_ms),
        "producer_id": held.producer_id,
    }
    command._show(manifest, as_json=False)
    assert "held up by open transactions" in capsys.readouterr().out

    await asyncio.to_thread(opened.abort_transaction, 30)
    whole = await vault.backup(broker.bootstrap, topic, backup_id="b2")
    assert whole.partition(TopicPartition(topic, 0)).held_up is None
    assert (whole.records, whole.exit_code) == (12, 0)


async def test_a_batch_that_cannot_be_read_leaves_the_numbers(
    broker: BrokerProcess, here: ClusterClient, vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh("held")
    await create(here, topic)
    opened = await asyncio.to_thread(producer, broker.bootstrap, topic)
    await asyncio.to_thread(write, opened, topic, 0, 1_000)

    async def refused(*_: object, **__: object) -> None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, topic)

    monkeypatch.setattr(ClusterClient, "fetch", refused)
    manifest = await vault.backup(broker.bootstrap, topic)
    assert manifest.partition(TopicPartition(topic, 0)).held_up == HeldUp(offsets=1)
    await asyncio.to_thread(opened.abort_transaction, 30)
