"""A write in several parts, so that a transaction can end in the middle of one.

Owns putting together what became of the parts: where a later one fails, those before it are told with the
error. A chunk may hold thousands of tiny batches, one of which goes in a request; a transaction that waited
for the last of them would take longer than it may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from transfer.endpoint import DisorderError, RefusedError, TransferError
from transfer.kafka.lane import Pending, Ticket
from transfer.ledger import Copied
from transfer.rewrite import Outgoing

BATCHES = 64
"""Of one part."""


def parts_of(whole: Ticket, outs: Sequence[Outgoing]) -> Iterator[Ticket]:
    """Tickets for all batches of a write, in order; the last one stands for its end."""
    for first in range(0, len(outs) - BATCHES, BATCHES):
        some = outs[first : first + BATCHES]
        done: asyncio.Future[Copied] = whole.done.get_loop().create_future()
        end = some[-1].next_source_offset
        part = Ticket(done, end, some[-1].source_epoch, first_source_offset=whole.first_source_offset)
        part.batches = [Pending(out, part) for out in some]
        whole.first_source_offset = end
        yield part
    rest = outs[(max(len(outs) - 1, 0) // BATCHES) * BATCHES :]
    whole.batches = [Pending(out, whole) for out in rest]
    yield whole


async def outcome(parts: Sequence[Ticket]) -> Copied:
    """Of all parts together. Raises what the first one that failed does, with what is there before it."""
    found: Copied | None = None
    try:
        for part in parts:
            try:
                copied = await part.done
            except TransferError as error:
                if found is None:
                    raise
                raise _told(error, found if error.copied is None else _joined(found, error.copied)) from error
            found = copied if found is None else _joined(found, copied)
    finally:
        for part in parts:
            if not part.done.cancel() and not part.done.cancelled():
                part.done.exception()  # somebody has looked at it
    assert found is not None
    return found


def _joined(first: Copied, second: Copied) -> Copied:
    return second._replace(
        runs=first.runs + second.runs,
        records=first.records + second.records,
        bytes=first.bytes + second.bytes,
        crcs=first.crcs + second.crcs,
        last_timestamp=max(first.last_timestamp, second.last_timestamp),
        left_out=first.left_out + second.left_out,
        written=first.written + second.written,
        first_source_offset=first.first_source_offset,
        at_ms=first.at_ms,
        target_epoch=max(first.target_epoch, second.target_epoch),
    )


def _told(error: TransferError, copied: Copied) -> TransferError:
    """An error of its own: others may have failed by the same one."""
    if isinstance(error, RefusedError):
        own: TransferError = RefusedError(error.tp, error.offset, error.reason, error.code)
    elif isinstance(error, DisorderError):
        own = DisorderError(error.tp, error.reason)
        own.counted = error.counted
    else:
        own = type(error)(str(error))
    own.copied = copied
    return own
