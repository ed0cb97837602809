"""Blocks of producer ids: /latest_producer_id_block, moved on by compare-and-set.

Must not know who gets which id out of a block. (Kafka: `ProducerIdManager`.)
"""

from broker.control import paths
from broker.control.nodes import ProducerIdBlock
from broker.control.zookeeper import ZooKeeper
from broker.control.zookeeper_types import BadVersion, NodeExists, NoNode
from protocol.errors import ErrorCode, KafkaError

BLOCK_SIZE = 1000
_LAST_ID = 2**63 - 1


async def claim_block(zookeeper: ZooKeeper, broker_id: int) -> ProducerIdBlock:
    """Take the next block for a broker. No id is ever in two blocks."""
    while True:
        node = await zookeeper.get(paths.PRODUCER_ID_BLOCK)
        first = 0 if node is None or not node.data else ProducerIdBlock.decode(node.data).last + 1
        if first > _LAST_ID - BLOCK_SIZE:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids of this cluster are used up")
        block = ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)
        try:
            if node is None:
                await zookeeper.create(paths.PRODUCER_ID_BLOCK, block.encode())
            else:
                await zookeeper.set(paths.PRODUCER_ID_BLOCK, block.encode(), node.version)
        except (BadVersion, NodeExists, NoNode):
            continue  # another broker was first
        return block
