"""The one policy of the cluster client for trying again.

Owns which failures waiting can cure and how long to wait between attempts: exponential with jitter, up to a
total time. What has to be forgotten or looked up anew between two attempts is the caller's business.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_delay
from tenacity.wait import wait_exponential, wait_random

from protocol.client.errors import (
    AuthenticationError,
    ClientError,
    NotSupportedError,
    TokenError,
    WrongClusterError,
)
from protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")

logger = logging.getLogger("isthmus.protocol")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`total_s` 0 means one attempt. A topic that nobody knows is asked for again only for
    `unknown_topic_s`: just created it may not be known everywhere, but a wrong name should fail soon."""

    total_s: float = 30.0
    unknown_topic_s: float = 5.0
    first_wait_s: float = 0.05
    longest_wait_s: float = 1.0


NO_RETRIES = RetryPolicy(total_s=0)


def may_be_cured(error: BaseException) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, KafkaError):
        return error.retriable
    if isinstance(error, TokenError):
        return error.curable
    hopeless = NotSupportedError | AuthenticationError | WrongClusterError
    return isinstance(error, ClientError) and not isinstance(error, hopeless)


async def retrying(
    attempt: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    *,
    curable: Callable[[BaseException], bool] = may_be_cured,
) -> T:
    """The first result of `attempt`; its last error once time is up or waiting cannot cure it."""
    began = time.monotonic()

    def again(error: BaseException) -> bool:
        if isinstance(error, KafkaError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return time.monotonic() - began < policy.unknown_topic_s
        return curable(error)

    def note(state: RetryCallState) -> None:
        logger.debug(
            "attempt %d failed: %s", state.attempt_number + 1, state.outcome and state.outcome.exception()
        )

    # Nearly every request succeeds at once, and setting up a loop of attempts costs more than the request.
    try:
        return await attempt()
    except Exception as error:
        left_s = policy.total_s - (time.monotonic() - began)
        if left_s <= 0 or not again(error):
            raise
        logger.debug("attempt 1 failed: %s", error)
    await asyncio.sleep(policy.first_wait_s * (1 + random.random()))
    attempts = AsyncRetrying(
        retry=retry_if_exception(again),
        stop=stop_after_delay(left_s),
        wait=wait_exponential(multiplier=policy.first_wait_s, max=policy.longest_wait_s)
        + wait_random(0, policy.first_wait_s),
        before_sleep=note,
        reraise=True,
    )
    return await attempts(attempt)
