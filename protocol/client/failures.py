"""Results per item: the good ones kept, the bad ones raised together with their names.

Owns the rule of the conveniences: one bad item never stops the others, and whoever asked for several gets
an error that names the first bad one and says how many more there were.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from protocol.client.retry import RetryPolicy, may_be_cured, retrying
from protocol.errors import ErrorCode, KafkaError

K = TypeVar("K")
V = TypeVar("V")


def failure(code: int, where: object, message: str | None = None) -> KafkaError:
    """The error of one item, with the broker's own text if it sent one."""
    return KafkaError(ErrorCode.of(code), f"{where}: {message}" if message else str(where))


def raise_first(errors: Mapping[Any, BaseException]) -> None:
    """Raises if there is any error: the first one, preferring one that waiting cannot cure."""
    if not errors:
        return
    first = next((error for error in errors.values() if not may_be_cured(error)), None)
    first = first or next(iter(errors.values()))
    if len(errors) > 1 and isinstance(first, KafkaError):
        raise KafkaError(first.code, f"{first.message} (and {len(errors) - 1} more failed)") from first
    raise first


async def each(
    items: Mapping[K, Any],
    attempt: Callable[[dict[K, Any]], Awaitable[Mapping[K, V | BaseException | None]]],
    policy: RetryPolicy,
) -> dict[K, V]:
    """Runs `attempt` on all items, then again on those that failed and may be cured.

    None says that an item is done without a result; an item that an answer leaves out has failed. Raises
    after the last round.
    """
    done: dict[K, V] = {}
    left = dict(items)
    hopeless: dict[K, BaseException] = {}

    async def once() -> None:
        results = await attempt(dict(left)) if left else {}
        curable: dict[K, BaseException] = {}
        for key in list(left):
            result = results.get(
                key, failure(ErrorCode.UNKNOWN_SERVER_ERROR, f"{key}: left out of the answer")
            )
            if not isinstance(result, BaseException):
                del left[key]
                if result is not None:
                    done[key] = result
            elif may_be_cured(result):
                curable[key] = result
            else:
                del left[key]
                hopeless[key] = result
        raise_first(curable)

    try:
        await retrying(once, policy)
    except BaseException:
        raise_first(hopeless)
        raise
    raise_first(hopeless)
    return done
