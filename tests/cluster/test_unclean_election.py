"""A topic that allows unclean elections gets a leader from any replica, whoever is the controller."""

import pytest

from protocol.client import ClusterClient, NewTopic
from tests.cluster.links import eventually
from tests.support.broker import Cluster
from tests.support.zookeeper import fresh_chroot

pytestmark = [pytest.mark.cluster]
_UNCLEAN = {"unclean.leader.election.enable": "true"}


@pytest.mark.parametrize("allowed", ["before", "when nobody leads"])
@pytest.mark.parametrize("returns", ["at once", "late"])
async def test_a_replica_that_was_not_in_sync_leads_also_where_the_controller_has_none(
    zookeeper_server, tmp_path, allowed, returns
):
    """The controller (broker 3) has no replica of the topic, so it had no need of its settings before."""
    cluster = Cluster(tmp_path, fresh_chroot(zookeeper_server))
    for number in (3, 1, 2):
        cluster.add(number)
    try:
        cluster.start()
        async with ClusterClient(cluster.brokers[3].bootstrap) as client:
            configs = _UNCLEAN if allowed == "before" else {}
            await client.create_topics([NewTopic("t", assignment={0: [1, 2]}, configs=configs)])

            async def stands(leader, isr):
                at = (await client.metadata(["t"])).topics["t"].partitions[0]
                return (at.leader, at.isr) == (leader, isr)

            cluster.brokers[2].kill()
            await eventually(lambda: stands(1, (1,)), "the second broker is out of sync")
            cluster.brokers[1].kill()
            if returns == "late":
                await eventually(lambda: stands(-1, (1,)), "nobody leads")
            cluster.brokers[2].start()
            if allowed != "before":
                await eventually(lambda: stands(-1, (1,)), "nobody leads without a word")
                await client.alter_configs({"t": _UNCLEAN})
            await eventually(lambda: stands(2, (2,)), "the replica that is left leads")
    finally:
        cluster.close()
