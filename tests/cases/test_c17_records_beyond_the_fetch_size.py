"""C17, the part of followers: one larger than `replica.fetch.max.bytes` is copied all the same (KIP-74)."""

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.broker import Cluster
from tests.support.three_brokers import consume, create, in_sync, produce, three_brokers

pytestmark = pytest.mark.cluster

SIZES = {"replica.fetch.max.bytes": "1048576", "replica.fetch.response.max.bytes": "1048576"}
LIMIT = {"max.message.bytes": "5000000", "min.insync.replicas": "3"}


def test_a_record_bigger_than_the_fetch_size_is_replicated(cluster: Callable[[int], Cluster]) -> None:
    # In sync for as long as this takes on a slow machine: falling out would hide that nothing is copied.
    made = three_brokers(cluster(0), {**SIZES, "replica.lag.time.max.ms": "60000"})
    create(made, "t", (1, 2, 3), config=LIMIT)
    large = os.urandom(3_000_000)  # compresses to nothing less
    values = [b"before", large, b"between", large, b"after"]
    began = time.monotonic()
    sizes: dict[str, Any] = {"message.max.bytes": 5_000_000, "compression.type": "lz4"}
    assert produce(made, "t", values, **sizes) == values
    assert time.monotonic() - began < 30, "the case asks for 5 s, on an idle machine"
    assert in_sync(made, "t") == [1, 2, 3]
    made.brokers[1].kill()
    assert consume(made, "t", 5) == values
