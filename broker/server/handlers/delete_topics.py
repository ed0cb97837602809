"""DeleteTopics (key 20): by name, or from v6 by id (KIP-516).

- The answer comes when this broker's metadata does not know the topic any more, or with REQUEST_TIMED_OUT.
- Deletion does not wait for replicas whose broker is down: they are set aside when it comes back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from broker.server.context import RequestContext
from broker.server.registry import handles
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from protocol.types import ZERO_UUID, uuid_to_text

if TYPE_CHECKING:
    from broker.server.app import Broker


@handles(DeleteTopicsRequest, min=1, max=6)
async def delete_topics(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    wanted = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    wait_s = max(request.timeout_ms, 0) / 1000
    named = Counter((topic.name, topic.topic_id) for topic in wanted)
    unique = {(topic.name, topic.topic_id): topic for topic in wanted}
    results = await asyncio.gather(
        *(_delete(context.broker, topic, named[key], wait_s) for key, topic in unique.items())
    )
    return DeleteTopicsResponse(responses=list(results))


async def _delete(broker: Broker, topic: DeleteTopicState, count: int, wait_s: float) -> DeletableTopicResult:
    result = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
    try:
        if count > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
        name = result.name = _name(broker, topic)
        result.topic_id = broker.metadata.topic_id(name)
        gone = await broker.topics.delete_topic(name, wait_s=wait_s)
        if not gone:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"deletion of topic {name!r} goes on, it took too long"
            )
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def _name(broker: Broker, topic: DeleteTopicState) -> str:
    if topic.topic_id == ZERO_UUID:
        if topic.name is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "neither a topic name nor an id was given")
        return topic.name
    if topic.name is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "give a topic name or an id, not both")
    name = broker.metadata.topic_name(topic.topic_id)
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {uuid_to_text(topic.topic_id)}")
    return name
