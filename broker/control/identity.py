"""Who this cluster and this broker are: /cluster/id, and numbers for brokers that were given none.

Must not know the data directory: it holds the same facts, and whoever starts the broker compares them.
"""

import asyncio

from broker.config import BrokerConfig
from broker.control import features, paths
from broker.control.nodes import decode_cluster_id, encode_cluster_id
from broker.control.zookeeper import ZooKeeper
from broker.control.zookeeper_types import NodeExists
from protocol.types import new_topic_id, uuid_to_text


async def prepare_tree(zookeeper: ZooKeeper) -> None:
    """Make the nodes that every cluster has, where they are missing."""
    await asyncio.gather(*(_prepare(zookeeper, path) for path in paths.PERSISTENT))


async def _prepare(zookeeper: ZooKeeper, path: str) -> None:
    if not await zookeeper.exists(path):
        await zookeeper.make_path(path)


async def cluster_id(zookeeper: ZooKeeper) -> str:
    """Id of the cluster; the first broker ever draws it."""
    while True:
        node = await zookeeper.get(paths.CLUSTER_ID)
        if node is not None:
            return decode_cluster_id(node.data)
        await zookeeper.make_path(paths.CLUSTER_ID.rpartition("/")[0])
        await features.make_initial(zookeeper)
        drawn = uuid_to_text(new_topic_id())  # any random UUID does
        try:
            await zookeeper.create(paths.CLUSTER_ID, encode_cluster_id(drawn))
        except NodeExists:
            continue  # another broker was first
        return drawn


async def next_broker_id(zookeeper: ZooKeeper, config: BrokerConfig) -> int:
    """A number that no broker has had, above those that people give (`reserved.broker.max.id`)."""
    await zookeeper.make_path(paths.BROKER_SEQUENCE)
    version = await zookeeper.set(paths.BROKER_SEQUENCE, b"")
    return config.reserved_broker_max_id + version
