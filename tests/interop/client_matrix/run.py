"""Every client version of the matrix, in an environment of its own, with the same scenarios.

A test is called CLIENT-VERSION:SCENARIO. A scenario runs as a process of its own that talks to our broker;
the codec scenarios are proven from outside: every batch in the topic must carry the codec that was asked for
(trap a: a client that does not like the broker's versions sends plain batches and says nothing).
"""

import asyncio
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from protocol.client.connection import Connection
from protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from protocol.records import iter_headers
from tests.interop.client_matrix.environments import ALL
from tests.interop.suite import Options, Result, ToolChainMissing, main

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
SCENARIOS = (*CODECS, "idempotent", "group", "admin", "transactions")
_LIMIT_S = 150.0
_NO_SUCH_FEATURE = 77


async def codecs_in(bootstrap: str, topic: str) -> set[int]:
    """The codecs of the batches of partition 0."""
    host, _, port = bootstrap.partition(":")
    connection = await Connection.open(host, int(port))
    try:
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 24,
            topics=[FetchTopic(topic=topic, partitions=[partition])],
        )
        answer = await connection.send(request, 12)
    finally:
        await connection.close()
    records = answer.responses[0].partitions[0].records
    assert isinstance(records, bytes | bytearray | memoryview)
    return {header.codec for _, header in iter_headers(bytes(records))}


def run_one(name: str, command: list[str], bootstrap: str) -> Result:
    scenario = name.partition(":")[2]
    topic = f"matrix-{uuid.uuid4().hex[:12]}"
    started = time.monotonic()
    try:
        done = subprocess.run(
            [*command, bootstrap, scenario, topic],
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Result(name, "failed", _LIMIT_S, "not done in time")
    seconds = time.monotonic() - started
    if done.returncode == _NO_SUCH_FEATURE:
        return Result(name, "skipped", seconds, "this version has no such feature")
    if done.returncode != 0:
        sys.stderr.write(done.stdout[-3000:] + done.stderr[-6000:])
        lines = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()
        return Result(name, "failed", seconds, lines[-1][:300])
    if scenario in CODECS:
        found = asyncio.run(codecs_in(bootstrap, topic))
        if found != {CODECS[scenario]}:
            return Result(name, "failed", seconds, f"batches came with the codecs {sorted(found)}")
    return Result(name, "passed", seconds)


def tests(options: Options) -> Iterator[Result]:
    chosen = options.chosen(f"{client}:{scenario}" for client in ALL for scenario in SCENARIOS)
    commands: dict[str, list[str]] = {}
    missing: dict[str, str] = {}
    for client in dict.fromkeys(name.partition(":")[0] for name in chosen):
        try:
            commands[client] = ALL[client].prepare(ALL[client])
        except ToolChainMissing as absent:
            missing[client] = str(absent)
    if not commands:
        raise ToolChainMissing("; ".join(missing.values()))
    with options.broker() as bootstrap:
        for name in chosen:
            client = name.partition(":")[0]
            if client in missing:
                yield Result(name, "skipped", note=missing[client])
            else:
                yield run_one(name, commands[client], bootstrap)


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent, tests))
