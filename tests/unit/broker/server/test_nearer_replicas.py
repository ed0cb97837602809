"""Consumers that are sent to a replica in their rack (KIP-392), also in the middle of a fetch session."""

from __future__ import annotations

from pathlib import Path

from broker.config.cluster_settings import RACK_AWARE_SELECTOR
from protocol.messages.update_metadata_request import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from tests.support.served import batch, served


async def test_a_replica_that_comes_near_is_named_within_a_session(tmp_path: Path) -> None:
    async with served(tmp_path, replica_selector_class=RACK_AWARE_SELECTOR) as at:
        at.topics.create("t")
        partition = at.broker.replicas.leader("t", 0)
        partition.lead(1, 1, (1,), (1, 2), 1)
        for value in (b"a", b"b", b"c"):
            partition.append(memoryview(bytearray(batch(value))))
        listener = next(iter(at.broker.listeners))
        at.broker.metadata.update(
            UpdateMetadataRequest(
                controller_id=1,
                controller_epoch=1,
                live_brokers=[
                    UpdateMetadataBroker(
                        id=number,
                        rack=rack,
                        endpoints=[UpdateMetadataEndpoint(host="127.0.0.1", port=at.port, listener=listener)],
                    )
                    for number, rack in ((1, "here"), (2, "there"))
                ],
            )
        )
        full = at.fetch_request("t", 0, rack_id="there", partition_max_bytes=1, session_epoch=0)
        answer = await at.connection.send(full)
        assert answer.session_id
        assert answer.responses[0].partitions[0].records, "nobody else is in sync"
        partition.lead(1, 1, (1, 2), (1, 2), 2)
        partition.followed(2, 3, 0, 1.0)
        assert partition.high_watermark == 3
        on = at.fetch_request(
            "t", 1, rack_id="there", session_epoch=1, session_id=answer.session_id, max_wait_ms=100
        )
        [topic] = (await at.connection.send(on)).responses
        assert topic.partitions[0].preferred_read_replica == 2
