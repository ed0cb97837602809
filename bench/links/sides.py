"""Who copies, and between which brokers: our link, also with identical offsets, MirrorMaker 2, also tuned.

Owns processes. All but mirrors, which need a topology, get the same properties file, and run between the same
two brokers: Apache Kafka's where it can be had, else ours. CPU and memory are those of the copying process
alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.brokers.limits import RowFailed
from bench.brokers.sides import OURS, ROOT, Side, interop_script, isthmus
from protocol.client import ClusterClient
from protocol.errors import ProtocolError
from topology.runtime import free_port

MM2 = "mm2"
TUNED = "mm2_tuned"
MIRROR = "mirror"
CONTENDERS = (OURS, MM2, TUNED)

_STARTED_WITHIN_S = 240.0
_ENDED_WITHIN_S = 60.0
_FOR_ALL = """
replication.factor=1
offset-syncs.topic.replication.factor=1
heartbeats.topic.replication.factor=1
checkpoints.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
sync.group.offsets.enabled=true
"""
# Groups of a row begin after the copying: MirrorMaker 2 would look for them every 600 s.
_FOR_MM2 = """
refresh.groups.interval.seconds=5
emit.checkpoints.interval.seconds=5
sync.group.offsets.interval.seconds=5
"""
_EXACTLY_ONCE = "target.exactly.once.source.support=enabled\n"
_IDENTITY = "replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
# Clients' settings count by cluster: for all, MirrorMaker 2 takes none of them, without a word. Fetches of
# 32 MB and producers of 128 MB, four of each, are more than its heap of 1 GB: tasks end with OutOfMemory.
_FOR_TUNED = """
tasks.max=4
refresh.topics.interval.seconds=5
SOURCE.consumer.fetch.min.bytes=262144
SOURCE.consumer.max.partition.fetch.bytes=2097152
SOURCE.consumer.fetch.max.bytes=8388608
SOURCE.consumer.max.poll.records=5000
SOURCE.consumer.receive.buffer.bytes=1048576
target.producer.batch.size=524288
target.producer.linger.ms=50
target.producer.buffer.memory=67108864
target.producer.max.request.size=4194304
"""


def mm2_script() -> Path:
    return interop_script().with_name("mm2.sh")


@dataclass(frozen=True)
class Ground:
    """The two brokers between which is copied, and where files go."""

    source: Side
    target: Side
    folder: Path
    same_names: bool = False
    """Whether topics are called at the target as at the source."""
    exactly_once: bool = False


@contextlib.contextmanager
def ground(folder: Path, *, kafka: bool) -> Iterator[Ground]:
    """Two brokers with default settings; ours keep their data below `folder`."""
    with contextlib.ExitStack() as stack:
        if kafka:
            source, target = (stack.enter_context(_apache_kafka(name)) for name in ("source", "target"))
        else:
            source, target = (
                stack.enter_context(isthmus(folder / "brokers" / name)) for name in ("source", "target")
            )
        yield Ground(source, target, folder)


@contextlib.contextmanager
def _apache_kafka(place: str) -> Iterator[Side]:
    script, name, port = interop_script(), f"bench-link-{place}-{os.getpid()}", free_port()
    environment = {"INTEROP_WAIT_S": "180", **os.environ, "INTEROP_CONTROLLER_PORT": str(free_port())}
    command = [str(script), "start", name, str(port), "log.retention.ms=-1"]
    try:
        began = time.monotonic()
        started = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        yield Side("kafka", port, int(started.stdout.split()[-1]), time.monotonic() - began)
    finally:
        subprocess.run([str(script), "wipe", name], check=False, capture_output=True)


class Copier:
    """A running contender. What it copies of `topic` is at the target under `at_target(topic)`."""

    def __init__(self, alias: str, prefix: str, process: psutil.Process, began: float) -> None:
        self.alias = alias
        self.prefix = prefix
        self.began = began
        """When it was started, by the monotonic clock."""
        self.made: set[str] = set()
        self._process = process

    def at_target(self, topic: str) -> str:
        self.made.add(f"{self.prefix}{topic}")
        return f"{self.prefix}{topic}"

    def cpu_s(self) -> float:
        try:
            used = self._process.cpu_times()
        except psutil.NoSuchProcess:
            raise RowFailed("the copying process has ended") from None
        return float(used.user + used.system)

    def peak_mb(self) -> float:
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1000
        raise RowFailed("the copying process has ended")


@contextlib.asynccontextmanager
async def copying(contender: str, between: Ground, topics: str) -> AsyncIterator[Copier]:
    """Runs a contender over the topics of a pattern, under an alias that nobody had before; afterwards what
    it copied is deleted, or the disk would be full in the middle of the table."""
    alias = f"e{time.time_ns() % 10**10}"
    if contender == MIRROR:
        file = _mirror_file(alias, between, topics)
    else:
        file = _properties_file(alias, contender, between, topics)
    copier: Copier | None = None
    try:
        async with _running(contender, alias, between, file) as copier:
            yield copier
    finally:
        if copier is not None and copier.made:
            async with ClusterClient(between.target.bootstrap) as client:
                with contextlib.suppress(ProtocolError):
                    await client.delete_topics(copier.made)


def _properties_file(alias: str, contender: str, between: Ground, topics: str) -> Path:
    file = between.folder / f"{alias}.properties"
    file.write_text(
        f"clusters={alias}, target\n"
        f"{alias}.bootstrap.servers={between.source.bootstrap}\n"
        f"target.bootstrap.servers={between.target.bootstrap}\n"
        f"{alias}->target.enabled=true\n"
        f"{alias}->target.topics={topics}\n"
        + _FOR_ALL
        + (_IDENTITY if between.same_names else "")
        + (_EXACTLY_ONCE if between.exactly_once else "")
        + (_FOR_MM2 if contender != OURS else "")
        + (_FOR_TUNED.replace("SOURCE", alias) if contender == TUNED else "")
    )
    return file


def _mirror_file(alias: str, between: Ground, topics: str) -> Path:
    file = between.folder / f"{alias}.yaml"
    clusters = {alias: between.source.bootstrap, "target": between.target.bootstrap}
    link = {"offsets": "identical", "naming": "identity", "topics": [topics], "replication_factor": 1}
    topology = {
        "version": 1,
        "name": alias,
        "data_directory": alias,
        "datacenters": {"here": {"description": "this machine"}},
        "clusters": {name: {"datacenter": "here", "bootstrap_servers": at} for name, at in clusters.items()},
        "links": {f"{alias}->target": link},
    }
    file.write_text(json.dumps(topology))
    return file


@contextlib.asynccontextmanager
async def _running(contender: str, alias: str, between: Ground, properties: Path) -> AsyncIterator[Copier]:
    began = time.monotonic()
    prefix = "" if between.same_names else f"{alias}."
    if contender in (OURS, MIRROR):
        with (between.folder / "isthmus.log").open("ab") as log:
            command = [sys.executable, "-m", "isthmus", "replicate", str(properties)]
            process = psutil.Popen(command, stdout=log, stderr=log, cwd=ROOT)
        try:
            yield Copier(alias, prefix, process, began)
        finally:
            await asyncio.to_thread(_end, process)
        return
    name = f"bench-{alias}"
    script = str(mm2_script())
    try:
        yield Copier(alias, prefix, await asyncio.to_thread(_start_mm2, script, properties, name), began)
    finally:
        await asyncio.to_thread(subprocess.run, [script, "stop", name], check=False, capture_output=True)


def _start_mm2(script: str, properties: Path, name: str) -> psutil.Process:
    try:
        started = subprocess.run(
            [script, "start", str(properties), name],
            env={"INTEROP_WAIT_S": "180", **os.environ},
            check=True,
            capture_output=True,
            text=True,
            timeout=_STARTED_WITHIN_S,
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise RowFailed(f"MirrorMaker 2 did not start: {error}") from error
    return psutil.Process(int(started.stdout.split()[-1]))


def _end(process: psutil.Popen) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_ENDED_WITHIN_S)
    except psutil.TimeoutExpired:
        print("the link does not end: killed", file=sys.stderr, flush=True)
        process.kill()
        process.wait()
