"""AlterConfigs (key 33) and IncrementalAlterConfigs (key 44, KIP-339): settings of topics and of brokers.

- AlterConfigs replaces all own settings of a resource; the incremental form sets, deletes, appends to and
  subtracts from single ones. A list keeps its order, and appending what is there changes nothing.
- A broker takes its own dynamic settings (KIP-226), with the empty name those of all brokers. One that only
  a start reads, or a wrong value, refuses the whole resource with INVALID_REQUEST, as Kafka does.
- Whose mirror a topic is stays as it is: AlterMirrors changes that, with what belongs to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from broker.config import TOPIC_DEFINITIONS, ConfigError, Kind, dynamic
from broker.config.topic_settings import MIRROR_SOURCE, broker_synonyms
from broker.control.config_store import DEFAULT_BROKER
from broker.server.context import RequestContext
from broker.server.handlers.config_resources import BROKER, TOPIC, check_broker, check_topic, unsupported
from broker.server.registry import handles
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_configs_request import AlterConfigsRequest
from protocol.messages.alter_configs_response import AlterConfigsResourceResponse as AlteredResource
from protocol.messages.alter_configs_response import AlterConfigsResponse
from protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse as IncrementallyAlteredResource,
)
from protocol.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

if TYPE_CHECKING:
    from broker.server.app import Broker

_SET: Final = 0
_DELETE: Final = 1
_APPEND: Final = 2
_SUBTRACT: Final = 3

_SYNONYMS: Final = broker_synonyms()

Edit = Callable[[dict[str, str]], dict[str, str]]


@handles(AlterConfigsRequest, min=0, max=2)
async def alter_configs(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    response = AlterConfigsResponse()
    named = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        answer = AlteredResource(resource_type=kind, resource_name=name, error_message=None)
        try:
            _check_once(named[kind, name])
            texts = {item.name: item.value for item in resource.configs}
            _check_no_repeats([item.name for item in resource.configs])
            wanted = {item: _needs_value(item, text) for item, text in texts.items()}
            await _change(context.broker, kind, name, _replace(wanted), request.validate_only)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        response.responses.append(answer)
    return response


@handles(IncrementalAlterConfigsRequest, min=0, max=1)
async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    response = IncrementalAlterConfigsResponse()
    named = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        answer = IncrementallyAlteredResource(resource_type=kind, resource_name=name, error_message=None)
        try:
            _check_once(named[kind, name])
            _check_no_repeats([item.name for item in resource.configs])
            edit = _edit(context.broker, resource.configs)
            await _change(context.broker, kind, name, edit, request.validate_only)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
        response.responses.append(answer)
    return response


def _still_mirror(edit: Edit) -> Edit:
    def edited(current: dict[str, str]) -> dict[str, str]:
        before = current.get(MIRROR_SOURCE)
        after = edit(current)
        if after.get(MIRROR_SOURCE) != before:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{MIRROR_SOURCE} is changed by `isthmus mirrors` and by links only",
            )
        return after

    return edited


def _replace(wanted: dict[str, str]) -> Edit:
    """Clients that replace all do not know that a topic is a mirror."""
    return lambda current: {key: text for key, text in current.items() if key == MIRROR_SOURCE} | wanted


async def _change(broker: Broker, kind: int, name: str, edit: Edit, validate_only: bool) -> None:
    if kind == TOPIC:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "topics have no default resource: name a topic")
        check_topic(broker, name)
        await broker.topics.change_configs(name, _still_mirror(edit), validate_only=validate_only)
    elif kind == BROKER:
        if name:
            check_broker(broker, name)
        await _change_broker(broker, name or DEFAULT_BROKER, edit, validate_only)
    else:
        raise unsupported(kind)


async def _change_broker(broker: Broker, name: str, edit: Edit, validate_only: bool) -> None:
    configs = broker.topics.configs

    def checked(current: dict[str, str]) -> dict[str, str]:
        wanted = edit(current)
        try:
            dynamic.check(wanted)
        except (dynamic.NotDynamic, ConfigError) as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        return wanted

    if validate_only:
        checked(await configs.broker_overrides(name))
    else:
        await configs.change_broker(name, checked)


def _check_once(count: int) -> None:
    if count > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names this resource more than once")


def _check_no_repeats(names: Sequence[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"given more than once: {', '.join(repeated)}")


def _needs_value(name: str, text: str | None) -> str:
    if text is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: a value is needed")
    return text


def _edit(broker: Broker, changes: Sequence[AlterableConfig]) -> Edit:
    """What the changes do to a resource's own settings. Raises KafkaError when called, too."""

    def edit(current: dict[str, str]) -> dict[str, str]:
        for change in changes:
            _apply(broker, current, change)
        return current

    return edit


def _apply(broker: Broker, current: dict[str, str], change: AlterableConfig) -> None:
    name = change.name
    if change.config_operation == _DELETE:
        current.pop(name, None)
        return
    text = _needs_value(name, change.value)
    if change.config_operation == _SET:
        current[name] = text
        return
    if change.config_operation not in (_APPEND, _SUBTRACT):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{name}: operation {change.config_operation} is not known"
        )
    definition = TOPIC_DEFINITIONS.get(name)
    if definition is None and name in _SYNONYMS:
        definition = _SYNONYMS[name][0]
    if definition is None or definition.kind is not Kind.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{name}: only lists can be appended to or subtracted from"
        )
    inherited = (
        definition.render(getattr(broker.topics.configs.in_force.topic_defaults, definition.attribute)) or ""
    )
    items = [item.strip() for item in current.get(name, inherited).split(",") if item.strip()]
    given = [item.strip() for item in text.split(",") if item.strip()]
    if change.config_operation == _APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    current[name] = ",".join(items)
