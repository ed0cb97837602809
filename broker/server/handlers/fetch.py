"""Fetch (key 1): read batches, waiting for them if there are not enough yet.

- Sessions (KIP-227, `broker.server.fetch_sessions`): an incremental answer names only partitions with data,
  an error, or another high watermark or log start than the reader was told; what had data is served last next
  time.
- At least one batch is returned whatever the limits are (KIP-74), and a fetch offset inside a batch returns
  the whole batch.
- The last stable offset is never -1: some readers wait for their position to reach it. The aborted list is
  null for read_uncommitted and a list, possibly empty, for read_committed.
- Leader epochs are checked from v9 (KIP-320), and from v12 the epoch of the last batch that a reader has:
  where its log parts from ours it is told so, instead of records that do not continue it (KIP-595).
- Topic ids replace names from v13 (KIP-516); a wrong leader is corrected from v16 (KIP-951).
- With `replica.selector.class` a leader sends consumers from v11 on to an in-sync replica in their rack
  (KIP-392), and followers serve them up to the high watermark that they know.
- Large answers go from the page cache to the socket without being read; what is not cached is brought there
  by a thread.
"""

from __future__ import annotations

from broker.server.context import RequestContext
from broker.server.fetch_job import ClientFetch, Tried
from broker.server.fetch_pass import replica_of
from broker.server.follower_fetch import FollowerFetch
from broker.server.registry import handles
from broker.server.turns import NO_LIMIT
from protocol.errors import KafkaError
from protocol.messages.fetch_request import FetchRequest
from protocol.messages.fetch_response import FetchResponse


@handles(
    FetchRequest,
    min=4,
    max=18,
    abandoned_on_close=True,
    max_items=NO_LIMIT,
    notes="topic ids from v13; the high watermark that v18 may name (KIP-1166) is passed over",
)
def fetch(request: FetchRequest, context: RequestContext) -> FetchResponse | Tried:
    try:
        job = (ClientFetch if replica_of(request) < 0 else FollowerFetch)(request, context)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    return job.attempt()
