"""What the broker costs while it runs: memory, descriptors, tasks, delay; and whether it grows.

Owns samples and their judgement. Event-loop delay is taken as the round trip of ApiVersions on a connection
of its own: nothing but the loop stands between question and answer.
"""

from __future__ import annotations

import os
import re
import socket
import statistics
import time
import urllib.request
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from tests.soak.hostile import API_VERSIONS

_PROBES = 20


@dataclass(frozen=True)
class Sample:
    at_s: float
    resident_mb: float
    sockets: int
    files: int
    deleted_files: int
    tasks: int
    connections: int
    delay_p50_ms: float
    delay_max_ms: float
    loop_peak_ms: float
    """The longest delay of the event loop in the last minute or two, by the broker's own measure."""


class Watch:
    def __init__(self, pid: int, host: str, port: int, metrics_port: int) -> None:
        self._process = psutil.Process(pid)
        self._address = (host, port)
        self._metrics = f"http://{host}:{metrics_port}/metrics"
        self._began = time.monotonic()
        self.samples: list[Sample] = []

    def take(self) -> Sample:
        sockets, files, deleted = self._descriptors()
        text = urllib.request.urlopen(self._metrics, timeout=30).read().decode()
        delays = self._delays()
        sample = Sample(
            at_s=round(time.monotonic() - self._began, 1),
            resident_mb=round(self._process.memory_info().rss / 1e6, 1),
            sockets=sockets,
            files=files,
            deleted_files=deleted,
            tasks=int(_gauge(text, "isthmus_broker_tasks")),
            connections=int(_gauge(text, "kafka_server_socketservermetrics_connection_count")),
            delay_p50_ms=round(statistics.median(delays), 2),
            delay_max_ms=round(max(delays), 2),
            loop_peak_ms=round(_gauge(text, "isthmus_broker_event_loop_delay_max_seconds") * 1000, 1),
        )
        self.samples.append(sample)
        return sample

    def _descriptors(self) -> tuple[int, int, int]:
        folder = f"/proc/{self._process.pid}/fd"
        links = []
        for name in os.listdir(folder):
            try:
                links.append(os.readlink(f"{folder}/{name}"))
            except OSError:  # closed meanwhile
                continue
        sockets = sum(link.startswith("socket:") for link in links)
        deleted = sum(link.endswith("(deleted)") for link in links)
        return sockets, len(links) - sockets, deleted

    def _delays(self) -> list[float]:
        """Milliseconds."""
        found = []
        with socket.create_connection(self._address, timeout=60) as sock:
            for _ in range(_PROBES):
                began = time.perf_counter()
                sock.sendall(API_VERSIONS)
                size = int.from_bytes(_exactly(sock, 4), "big")
                _exactly(sock, size)
                found.append((time.perf_counter() - began) * 1000)
                time.sleep(0.02)
        return found

    def rows(self) -> list[dict[str, Any]]:
        return [asdict(sample) for sample in self.samples]


def _exactly(sock: socket.socket, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = sock.recv(count - len(parts))
        if not part:
            raise ConnectionError("the broker closed the probe's connection")
        parts += part
    return parts


def _gauge(text: str, name: str) -> float:
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.M))


def growth_per_minute(points: list[tuple[float, float]]) -> float:
    """Slope of the least-squares line through (seconds, value), in units per minute."""
    if len(points) < 2:
        return 0.0
    return statistics.linear_regression(*zip(*points, strict=True)).slope * 60
