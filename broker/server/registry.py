"""Which requests this broker serves: the one place that ApiVersions, dispatch and `docs/protocol.md` read.

A handler module marks its functions with `@handles(SomeRequest, min=, max=)`; `Registry.discover()` imports
the modules of `broker.server.handlers` and collects the marks. What is not registered is not advertised, and
an unknown key or version closes the connection (KIP-511). The decorator only marks: there is no global table.

A handler is `def` or `async def handle(request, context) -> Response | None`; None means that no answer is
sent (acks=0). A `def` handler runs inside the network callback and may return an awaitable for the part that
has to wait. Record bytes in the request are slices of the connection's receive buffer: they are valid only
until the handler's synchronous part returns, so `async def` handlers must not touch them. `InOrder` around an
awaitable says that no later request of the connection may start before it is done.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from broker.server.turns import MAX_ITEMS

_MARK = "__kafka_entries__"

Handler = Callable[..., Any]
Decode = Callable[[int, memoryview, int], Any]
"""From version, frame and position of the body to what the handler takes. Raises DecodeError."""
H = TypeVar("H", bound=Handler)


class InOrder:
    """An answer to wait for that no later request of its connection may overtake, whatever its API says."""

    __slots__ = ("coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.coroutine.__await__()


@dataclass(frozen=True, slots=True)
class Entry:
    """One served API. `min`..`max` are accepted; ApiVersions says `advertised_min`..`max`."""

    request: type[Any]
    min: int
    max: int
    advertised_min: int
    handler: Handler
    notes: str
    pipelined: bool
    abandoned_on_close: bool
    max_items: int
    decode: Decode | None

    @property
    def key(self) -> int:
        return int(self.request.API_KEY)

    @property
    def name(self) -> str:
        return self.request.__name__.removesuffix("Request")


def handles(
    request: type[Any],
    *,
    min: int,  # noqa: A002 - Kafka's own words for a version range
    max: int,  # noqa: A002
    advertised_min: int | None = None,
    notes: str = "",
    pipelined: bool = False,
    abandoned_on_close: bool = False,
    max_items: int = MAX_ITEMS,
    decode: Decode | None = None,
) -> Callable[[H], H]:
    """Mark a function as the handler of `request` in versions `min`..`max`.

    `advertised_min` differs from `min` only where old clients read the advertised minimum as a feature flag.
    `notes` goes to docs/protocol.md. `pipelined`: the next request of the same connection may start while
    this one waits (answers stay in order). `abandoned_on_close`: waiting is cancelled when the client goes
    away; without it the handler runs to its end, because a half-done change must not be left behind.
    `max_items`: array items in one request; more than the default for handlers that work in turns.
    `decode`: in place of the codec, for a handler that takes something else than messages as well.
    """

    def mark(function: H) -> H:
        entry = Entry(
            request=request,
            min=min,
            max=max,
            advertised_min=min if advertised_min is None else advertised_min,
            handler=function,
            notes=notes,
            pipelined=pipelined,
            abandoned_on_close=abandoned_on_close,
            max_items=max_items,
            decode=decode,
        )
        function.__dict__.setdefault(_MARK, []).append(entry)
        return function

    return mark


class Registry:
    """The served APIs by key."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._by_key: dict[int, Entry] = {}
        for entry in entries:
            other = self._by_key.get(entry.key)
            if other is not None:
                raise ValueError(
                    f"{entry.name} (key {entry.key}) has two handlers: {other.handler}, {entry.handler}"
                )
            low, high = entry.request.VALID_VERSIONS
            if not low <= entry.min <= entry.max <= high:
                raise ValueError(
                    f"{entry.name} registers versions {entry.min}-{entry.max}, its schema has {low}-{high}"
                )
            self._by_key[entry.key] = entry

    @classmethod
    def discover(cls) -> Registry:
        """The registry of all handler modules of this broker."""
        from broker.server import handlers

        return cls(entry for module in _modules(handlers) for entry in marked(module))

    def find(self, api_key: int) -> Entry | None:
        return self._by_key.get(api_key)

    def __iter__(self) -> Iterator[Entry]:
        return iter(sorted(self._by_key.values(), key=lambda entry: entry.key))

    def __len__(self) -> int:
        return len(self._by_key)


def marked(module: ModuleType) -> Iterator[Entry]:
    """The entries declared in one handler module (not those it imported)."""
    for value in vars(module).values():
        if getattr(value, "__module__", None) == module.__name__:
            yield from getattr(value, "__dict__", {}).get(_MARK, ())


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        yield importlib.import_module(f"{package.__name__}.{info.name}")
