"""Connections that do not behave: killed by RST, silent, half a frame for ever, readers that stall.

Owns plain sockets and a thread. Frames are bytes made by the project's own codec; their answers are not
looked at, what counts is what the broker's memory and descriptors do.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from contextlib import suppress

from protocol.frames import encode_request
from protocol.messages.api_versions_request import ApiVersionsRequest
from protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic

IDLE = 1000
SLOW_READERS = 20
HALF_FRAMES = 50
_RST = struct.pack("ii", 1, 0)


def fetch_frame(topic: str, wait_ms: int = 0, min_bytes: int = 1) -> bytes:
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=50_000_000,
        topics=[
            FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 24)])
        ],
    )
    return b"".join(encode_request(request, 11, 1, "hostile"))


API_VERSIONS = b"".join(encode_request(ApiVersionsRequest(), 0, 1, "hostile"))


class Hostile:
    """`start` opens what stays; a thread goes on opening and killing until `end`."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        self._address = (host, port)
        self._topic = topic
        self._stay: list[socket.socket] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hostile", daemon=True)
        self.killed = 0
        self.failures: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join(60)
        for sock in self._stay:
            sock.close()

    def _dial(self) -> socket.socket:
        return socket.create_connection(self._address, timeout=30)

    def _run(self) -> None:
        try:
            for _ in range(IDLE):
                self._stay.append(self._dial())
            for _ in range(HALF_FRAMES):
                sock = self._dial()
                sock.sendall(b"\x00\x10\x00\x00" + random.randbytes(1000))
                self._stay.append(sock)
            slow = [self._slow_reader() for _ in range(SLOW_READERS)]
            self._stay += slow
            while not self._stop.wait(0.05):
                self._open_and_kill()
                self._sip(random.choice(slow))
        except OSError as error:
            self.failures.append(f"hostile: {error!r}")

    def _slow_reader(self) -> socket.socket:
        sock = self._dial()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(fetch_frame(self._topic) * 5)
        return sock

    def _sip(self, sock: socket.socket) -> None:
        """A little of what waits; a reader that has got all asks again."""
        sock.setblocking(False)
        try:
            if len(sock.recv(512)) == 0:
                self._stay.remove(sock)
        except BlockingIOError:
            with suppress(BlockingIOError):
                sock.sendall(fetch_frame(self._topic))
        except (OSError, ValueError):
            return  # closed for its silence

    def _open_and_kill(self) -> None:
        """In the middle of a frame, of a long poll, of an answer, or of nothing."""
        sock = self._dial()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
        kind = random.randrange(5)
        if kind == 0:
            sock.sendall(API_VERSIONS[: random.randrange(len(API_VERSIONS))])
        elif kind == 1:
            sock.sendall(fetch_frame(self._topic, wait_ms=60_000, min_bytes=1 << 30))
        elif kind == 2:
            sock.sendall(fetch_frame(self._topic) * 3)
            time.sleep(0.01)
        elif kind == 3:
            sock.sendall(random.randbytes(random.randrange(1, 200)))
        sock.close()
        self.killed += 1
