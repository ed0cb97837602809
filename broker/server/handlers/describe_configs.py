"""DescribeConfigs (key 32): settings of topics and of this broker, with sources (KIP-226, KIP-569).

- A broker answers for itself only; the empty broker name means the dynamic defaults of all brokers, and lists
  those that are set. v3+ carries types and documentation.
- Settings of topics are read anew from ZooKeeper; a broker that is cut off from it answers
  REQUEST_TIMED_OUT after `WAIT_S`, for the whole request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from broker.config.view import Entry, broker_entries, default_entries, topic_entries
from broker.control.zookeeper_types import SessionExpired, ZooKeeperError
from broker.server.context import RequestContext
from broker.server.handlers.config_resources import BROKER, TOPIC, check_broker, check_topic, unsupported
from broker.server.registry import handles
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from broker.server.app import Broker


_log = logging.getLogger("isthmus.broker")
WAIT_S = 10.0
_PAUSE_S = 0.1


@handles(DescribeConfigsRequest, min=1, max=4)
async def describe_configs(
    request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    end = asyncio.get_running_loop().time() + WAIT_S
    results = [await _describe(context.broker, resource, request, end) for resource in request.resources]
    late = [result for result in results if result.error_code == ErrorCode.REQUEST_TIMED_OUT]
    if late:
        _log.warning("DescribeConfigs from %s: %s", context.connection.peer, late[0].error_message)
    return DescribeConfigsResponse(results=results)


async def _describe(
    broker: Broker, resource: DescribeConfigsResource, request: DescribeConfigsRequest, end: float
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
    )
    try:
        entries = await _entries(broker, resource, end)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    wanted = resource.configuration_keys
    result.configs = [_result(entry, request) for entry in entries if wanted is None or entry.name in wanted]
    return result


async def _entries(broker: Broker, resource: DescribeConfigsResource, end: float) -> Iterable[Entry]:
    name, configs = resource.resource_name, broker.topics.configs
    if resource.resource_type == TOPIC:
        check_topic(broker, name)
        return topic_entries(broker.config, await _overrides(broker, name, end), configs.stored)
    if resource.resource_type != BROKER:
        raise unsupported(resource.resource_type)
    if name == "":
        return default_entries(configs.stored)
    check_broker(broker, name)
    return broker_entries(broker.config, configs.stored)


async def _overrides(broker: Broker, topic: str, end: float) -> Mapping[str, str]:
    """What the topic itself sets; with the next session if one is lost. Raises KafkaError at `end`."""
    try:
        async with asyncio.timeout_at(end):
            while True:
                try:
                    return await broker.topics.configs.load(topic)
                except SessionExpired:
                    await asyncio.sleep(_PAUSE_S)
    except (TimeoutError, ZooKeeperError):
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"settings of topic {topic!r}: broker {broker.metadata.broker_id} had no answer from ZooKeeper "
            f"within {WAIT_S:g} s; ask another broker, or again when it is no longer cut off",
        ) from None


def _result(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=list(_synonyms(entry)) if request.include_synonyms else [],
        config_type=entry.kind,
        documentation=entry.doc if request.include_documentation else None,
    )


def _synonyms(entry: Entry) -> Iterator[DescribeConfigsSynonym]:
    for origin in entry.origins:
        yield DescribeConfigsSynonym(
            name=origin.name, value=None if entry.sensitive else origin.value, source=origin.source
        )
