"""A session that was lost ends the lease until the controller has spoken to the next registration (I3)."""

import asyncio
import math

from broker.control.metadata_cache import MetadataCache
from broker.control.session_lease import SessionLease
from broker.control.zookeeper_types import SessionEvent
from broker.replication.lease import Lease
from protocol.messages.update_metadata_request import UpdateMetadataRequest


class Ensemble:
    """ZooKeeper that hears everything."""

    session_timeout_s = 0.3
    address = "zookeeper:2181"

    def __init__(self):
        self.session_id = 1
        self.listeners = []

    def on_session(self, callback):
        self.listeners.append(callback)

    async def heard(self):
        await asyncio.sleep(0)
        return True

    def expire(self):
        for listener in self.listeners:
            listener(SessionEvent.EXPIRED)
        self.session_id += 1


async def turns():
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_lost_session_ends_the_lease_until_the_controller_names_the_next_registration():
    now = [100.0]
    lease, zookeeper, metadata = Lease(lambda: now[0]), Ensemble(), MetadataCache(broker_id=1)
    keeper = SessionLease(lease, zookeeper, metadata)
    keeper.start()
    # The registration hears of the session after the lease does, as in the assembled broker.
    zookeeper.on_session(lambda event: setattr(metadata, "broker_epoch", -1))
    metadata.broker_epoch = 7
    metadata.update(UpdateMetadataRequest(broker_epoch=7))
    try:
        await turns()
        assert not lease.over
        zookeeper.expire()
        assert lease.until == -math.inf
        now[0] += 1.0
        await asyncio.sleep(0.3)  # questions that the new session answers
        assert lease.over, "it was elected by nobody since"
        metadata.broker_epoch = 9
        metadata.update(UpdateMetadataRequest(broker_epoch=7))
        assert lease.over, "that was said to the registration before"
        metadata.update(UpdateMetadataRequest(broker_epoch=9))
        await asyncio.sleep(0.3)
        assert not lease.over
    finally:
        await keeper.close()
