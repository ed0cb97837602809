"""UpdateFeatures (key 57, KIP-584): operators finalize levels of features for the whole cluster.

- The controller answers; others say NOT_CONTROLLER. All updates count or none.
- v0 has `allow_downgrade`, v1 the type of the change instead (upgrade, safe or unsafe downgrade, KIP-778).
  v2 has one error for the request (KIP-1022), earlier ones have one for each feature.
- Level 0 switches a feature off. A level that some registered broker cannot do is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.control.features import SUPPORTED
from broker.server.context import RequestContext
from broker.server.registry import handles
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from protocol.messages.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse

if TYPE_CHECKING:
    from broker.server.app import Broker

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_TYPES_FROM = 1
_ONE_ERROR_FROM = 2


@handles(UpdateFeaturesRequest, min=0, max=2, notes="feature transaction.version")
async def update_features(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    broker = context.broker
    if broker.controller is not None and not broker.controller.active:
        return UpdateFeaturesResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=None)
    try:
        for update in request.feature_updates:
            await _check(update, context)
    except KafkaError as error:
        return _answer(request, context, error)
    wanted = {update.feature: update.max_version_level for update in request.feature_updates}

    def edit(present: Mapping[str, int]) -> Mapping[str, int]:
        return {**present, **wanted}

    if not request.validate_only:
        await broker.features.change(edit)
    return _answer(request, context, None)


async def _check(update: FeatureUpdateKey, context: RequestContext) -> None:
    """Raise `KafkaError` unless this one may be."""
    broker: Broker = context.broker
    name, level = update.feature, update.max_version_level
    supported = SUPPORTED.get(name)
    if supported is None:
        raise _invalid(name, level, "there is no such feature here")
    if not supported.low <= level <= supported.high:
        raise _invalid(
            name, level, f"broker {broker.config.broker_id} can do {supported.low} to {supported.high}"
        )
    _check_direction(update, context.api_version, broker.features.finalized.level(name))
    without = await broker.features.brokers_without(name, level)
    if without:
        raise _invalid(name, level, f"broker {without[0]} cannot do it")


def _check_direction(update: FeatureUpdateKey, version: int, present: int) -> None:
    name, level = update.feature, update.max_version_level
    if version < _TYPES_FROM:
        downgrade = update.allow_downgrade
    elif update.upgrade_type in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        downgrade = update.upgrade_type != _UPGRADE
    else:
        raise _invalid(name, level, f"a change of type {update.upgrade_type} is not known")
    if level < present and not downgrade:
        raise _invalid(name, level, f"that is below {present}, and the request does not ask for a downgrade")
    if level > present and downgrade:
        raise _invalid(name, level, f"that is above {present}, and the request asks for a downgrade")


def _invalid(name: str, level: int, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"level {level} of feature {name}: {why}")


def _answer(
    request: UpdateFeaturesRequest, context: RequestContext, error: KafkaError | None
) -> UpdateFeaturesResponse:
    code = ErrorCode.NONE if error is None else error.code
    message = None if error is None else error.message
    if context.api_version >= _ONE_ERROR_FROM:
        return UpdateFeaturesResponse(error_code=code, error_message=message)
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=update.feature, error_code=code, error_message=message)
            for update in request.feature_updates
        ],
    )
