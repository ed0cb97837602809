"""InitProducerId (key 22): ids for idempotent producers (KIP-98, KIP-360).

- Without a transactional id every call gets a fresh id with epoch 0, also when the producer names the one it
  had (v3+): it asks because that one is of no use to it any more.
- Transactions are not supported yet: a transactional id is refused with INVALID_REQUEST.
- COORDINATOR_LOAD_IN_PROGRESS, which producers wait on, while no block of ids can be claimed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from broker.server.context import RequestContext
from broker.server.registry import handles
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id_request import InitProducerIdRequest
from protocol.messages.init_producer_id_response import InitProducerIdResponse

if TYPE_CHECKING:
    from broker.server.app import Broker

logger = logging.getLogger("isthmus.broker")

_NO_EPOCH = -1


@handles(InitProducerIdRequest, min=0, max=4, notes="idempotent producers only, no transactions yet")
def init_producer_id(
    request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if request.transactional_id is not None:
        logger.info("transactional id %r refused: no transactions yet", request.transactional_id)
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=_NO_EPOCH)
    producer_id = context.broker.producer_ids.at_hand()
    if producer_id is None:
        return _claim_and_take(context.broker)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _claim_and_take(broker: Broker) -> InitProducerIdResponse:
    try:
        producer_id = await broker.producer_ids.take()
    except Exception as error:  # noqa: BLE001 - whatever ZooKeeper's trouble is, the producer has to wait
        logger.warning("no producer ids can be claimed: %r", error)
        return InitProducerIdResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=_NO_EPOCH
        )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
