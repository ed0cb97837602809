"""InitProducerId (key 22): ids for idempotent and transactional producers (KIP-98, KIP-360).

- Without a transactional id every call gets a fresh id with epoch 0, also when the producer names the one it
  had (v3+): it asks because that one is of no use to it any more.
- With one the coordinator fences the instance before and, if that left a transaction open, first aborts it:
  the client asks again (CONCURRENT_TRANSACTIONS). Before v4 a fenced producer is told INVALID_PRODUCER_EPOCH.
- COORDINATOR_LOAD_IN_PROGRESS, which producers wait on, while no block of ids can be claimed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from broker.server.context import RequestContext
from broker.server.registry import handles
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.init_producer_id_request import InitProducerIdRequest
from protocol.messages.init_producer_id_response import InitProducerIdResponse

if TYPE_CHECKING:
    from broker.server.app import Broker

logger = logging.getLogger("isthmus.broker")

_NO_EPOCH = -1
_FENCED_FROM = 4


@handles(InitProducerIdRequest, min=0, max=5)
def init_producer_id(
    request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if request.transactional_id is not None:
        return _take_over(request.transactional_id, request, context)
    producer_id = context.broker.producer_ids.at_hand()
    if producer_id is None:
        return _claim_and_take(context.broker)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _take_over(
    transactional_id: str, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    expected = None
    if request.producer_id >= 0 or request.producer_epoch >= 0:
        expected = (request.producer_id, request.producer_epoch)
        if min(expected) < 0:  # both or none
            return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=_NO_EPOCH)
    try:
        producer_id, epoch = await context.broker.transactions.init_producer_id(
            transactional_id, request.transaction_timeout_ms, expected
        )
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < _FENCED_FROM:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return InitProducerIdResponse(error_code=code, producer_epoch=_NO_EPOCH)
    except Exception as error:  # noqa: BLE001 - whatever ZooKeeper's trouble is, the producer has to wait
        logger.warning("no producer ids can be claimed: %r", error)
        return InitProducerIdResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=_NO_EPOCH
        )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


async def _claim_and_take(broker: Broker) -> InitProducerIdResponse:
    try:
        producer_id = await broker.producer_ids.take()
    except Exception as error:  # noqa: BLE001 - whatever ZooKeeper's trouble is, the producer has to wait
        logger.warning("no producer ids can be claimed: %r", error)
        return InitProducerIdResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=_NO_EPOCH
        )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
