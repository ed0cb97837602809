"""Who this cluster and this broker are: /cluster/id, and numbers for brokers that were given none.

Also refuses a tree that is none of ours: where something else writes to Kafka's paths, or that a KRaft
controller has taken over.

Must not know the data directory: it holds the same facts, and whoever starts the broker compares them.
"""

import asyncio

from broker.config import BrokerConfig
from broker.control import features, paths
from broker.control.nodes import NodeFormatError, decode_cluster_id, encode_cluster_id
from broker.control.zookeeper import ZooKeeper
from broker.control.zookeeper_types import NodeExists
from protocol.types import new_topic_id, uuid_to_text


class ForeignTree(Exception):
    """What ZooKeeper holds under our chroot is no cluster that this broker may join."""


async def prepare_tree(zookeeper: ZooKeeper) -> None:
    """Make the nodes that every cluster has, where they are missing. Raises ForeignTree, nothing made."""
    if await zookeeper.get(paths.MIGRATION) is not None:
        raise ForeignTree(
            f"the cluster in ZooKeeper at {zookeeper.address} is being, or was, taken over by KRaft "
            f"controllers ({paths.MIGRATION} is there, KIP-866): what ZooKeeper holds may be out of date; "
            "give another zookeeper.connect, or go the way back to ZooKeeper first and delete that node"
        )
    await _known_cluster(zookeeper)
    await asyncio.gather(*(_prepare(zookeeper, path) for path in paths.PERSISTENT))


async def _prepare(zookeeper: ZooKeeper, path: str) -> None:
    if not await zookeeper.exists(path):
        await zookeeper.make_path(path)


async def cluster_id(zookeeper: ZooKeeper) -> str:
    """Id of the cluster; the first broker ever draws it."""
    while True:
        known = await _known_cluster(zookeeper)
        if known is not None:
            return known
        await zookeeper.make_path(paths.CLUSTER_ID.rpartition("/")[0])
        await features.make_initial(zookeeper)
        drawn = uuid_to_text(new_topic_id())  # any random UUID does
        try:
            await zookeeper.create(paths.CLUSTER_ID, encode_cluster_id(drawn))
        except NodeExists:
            continue  # another broker was first
        return drawn


async def _known_cluster(zookeeper: ZooKeeper) -> str | None:
    """The id that is there. Raises ForeignTree."""
    node = await zookeeper.get(paths.CLUSTER_ID)
    if node is None:
        return None
    try:
        return decode_cluster_id(node.data)
    except NodeFormatError as error:
        raise ForeignTree(
            f"ZooKeeper at {zookeeper.address}: {paths.CLUSTER_ID} is not what Kafka writes there ({error}): "
            "the chroot belongs to something else, or is damaged; give another chroot in zookeeper.connect, "
            "or put the node back as the log directories' meta.properties name it"
        ) from None


async def next_broker_id(zookeeper: ZooKeeper, config: BrokerConfig) -> int:
    """A number that no broker has had, above those that people give (`reserved.broker.max.id`)."""
    await zookeeper.make_path(paths.BROKER_SEQUENCE)
    version = await zookeeper.set(paths.BROKER_SEQUENCE, b"")
    return config.reserved_broker_max_id + version
