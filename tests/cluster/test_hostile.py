"""What a broker process does about peers that mean no good: it goes on for the others, in bounded memory."""

from __future__ import annotations

import os
import random
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psutil
import pytest
from confluent_kafka import Producer

from tests.support.broker import BrokerProcess
from tests.support.slow import slow

pytestmark = pytest.mark.cluster

CONNECTIONS = 1000
MANY = 10_000
BOUND_S = 30.0
MEGABYTE = 1_000_000
API_VERSIONS = b"\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff"


@pytest.fixture(autouse=True)
def descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def dial(broker: BrokerProcess) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", broker.port), timeout=BOUND_S)
    sock.settimeout(BOUND_S)
    return sock


def take(sock: socket.socket, count: int) -> bytes:
    """Exactly so many bytes."""
    parts = []
    while count:
        part = sock.recv(min(count, MEGABYTE))
        assert part, f"closed, {count} bytes short"
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def resident(broker: BrokerProcess) -> int:
    return int(psutil.Process(broker.pid).memory_info().rss)


def open_connections(broker: BrokerProcess) -> int:
    """Those of this process; the broker talks to itself too."""
    own = {each.laddr.port for each in psutil.Process().net_connections("tcp")}
    established = psutil.Process(broker.pid).net_connections("tcp")
    return sum(
        each.laddr.port == broker.port and each.status == "ESTABLISHED" and each.raddr.port in own
        for each in established
    )


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def serves(broker: BrokerProcess) -> None:
    """Someone well-behaved is answered at once."""
    with dial(broker) as sock:
        sock.sendall(framed(API_VERSIONS))
        size = int.from_bytes(take(sock, 4), "big")
        assert len(take(sock, size)) == size


def is_closed(sock: socket.socket) -> bool:
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        return True
    return True


def attacks() -> Iterator[bytes]:
    dice = random.Random(11)
    yield b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + dice.randbytes(300)  # a TLS client
    yield framed(b"")
    yield framed(b"\x00\x00\x00\x0b")
    yield (2**31 - 1).to_bytes(4, "big")
    yield (-1).to_bytes(4, "big", signed=True)
    yield framed(b"\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff")
    for key in range(62):  # every API with a body of nonsense
        for version in (0, 3, 9):
            head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\xff\xff"
            yield framed(head + dice.randbytes(dice.randrange(40)))
            yield framed(head + b"\x7f\xff\xff\xff" * 4)  # hostile lengths


def test_every_kind_of_nonsense_costs_one_connection(broker: BrokerProcess) -> None:
    serves(broker)
    before, pid = resident(broker), broker.pid
    with dial(broker) as bystander:
        for attack in attacks():
            with dial(broker) as sock:
                sock.sendall(attack)
                sock.shutdown(socket.SHUT_WR)
                assert is_closed(sock)
        bystander.sendall(framed(API_VERSIONS))
        assert len(take(bystander, 4)) == 4
    assert broker.running
    assert broker.pid == pid
    assert resident(broker) - before < 30 * MEGABYTE
    until(lambda: open_connections(broker) == 0)


def test_a_thousand_half_sent_frames_cost_what_was_sent(broker: BrokerProcess) -> None:
    serves(broker)
    before = resident(broker)
    announced = (100 * MEGABYTE).to_bytes(4, "big")
    with ExitStack() as stack:
        slow = [stack.enter_context(dial(broker)) for _ in range(CONNECTIONS)]
        for sock in slow:
            sock.sendall(announced + os.urandom(1000))
        until(lambda: open_connections(broker) == CONNECTIONS)
        serves(broker)
        for sock in slow:
            sock.sendall(b"z")
        serves(broker)
        assert resident(broker) - before < CONNECTIONS * 80_000
    until(lambda: open_connections(broker) == 0)
    serves(broker)


def test_idle_connections_are_cheap(broker: BrokerProcess) -> None:
    serves(broker)
    with ExitStack() as stack:
        for _ in range(50):  # what the first ones cost is not the price of the next
            stack.enter_context(dial(broker)).sendall(framed(API_VERSIONS))
        until(lambda: open_connections(broker) == 50)
        before = resident(broker)
        for _ in range(CONNECTIONS):
            stack.enter_context(dial(broker)).sendall(framed(API_VERSIONS))
        until(lambda: open_connections(broker) == CONNECTIONS + 50)
        serves(broker)
        assert (resident(broker) - before) / CONNECTIONS < 40_000
    until(lambda: open_connections(broker) == 0)


@slow("takes half a minute")
def test_ten_thousand_idle_connections(
    broker: BrokerProcess, record_property: Callable[[str, object], None]
) -> None:
    """Each costs at most 40 KB, somebody else is served at once, and nothing of it stays."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < MANY + 1000:
        pytest.skip(f"needs {MANY + 1000} file descriptors, {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    serves(broker)
    before, cpu_before = resident(broker), psutil.Process(broker.pid).cpu_times().user
    with ExitStack() as stack:
        opened = []
        for number in range(MANY):
            opened.append(stack.enter_context(dial(broker)))
            opened[-1].sendall(framed(API_VERSIONS))
            if number % 100 == 99:  # no more than the backlog takes
                serves(broker)
        for sock in opened:
            take(sock, int.from_bytes(take(sock, 4), "big"))
        each = (resident(broker) - before) / MANY
        opening_s = psutil.Process(broker.pid).cpu_times().user - cpu_before
        worst = 0.0
        for _ in range(100):
            began = time.monotonic()
            serves(broker)
            worst = max(worst, time.monotonic() - began)
        record_property(
            "measured", f"{each:.0f} B each, opened in {opening_s:.1f} s of CPU, worst {worst:.3f} s"
        )
        assert each < 40_000
        assert worst < BOUND_S / 10
        for sock in opened[::500]:  # they are alive
            sock.sendall(framed(API_VERSIONS))
            take(sock, int.from_bytes(take(sock, 4), "big"))
    until(lambda: open_connections(broker) == 0)
    serves(broker)


def test_readers_that_stop_reading_hold_little(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(40):
        producer.produce("big", os.urandom(900_000))
    assert producer.flush(BOUND_S) == 0
    before = resident(broker)
    fetch = (
        b"\x00\x01\x00\x04\x00\x00\x00\x01\xff\xff"  # Fetch v4, no client id
        b"\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\xff\xff\xff\x00"
        b"\x00\x00\x00\x01\x00\x03big\x00\x00\x00\x01\x00\x00\x00\x00" + bytes(8) + b"\x7f\xff\xff\xff"
    )
    with ExitStack() as stack:
        for _ in range(100):
            sock = stack.enter_context(dial(broker))
            sock.sendall(framed(fetch) * 3)
        serves(broker)
        assert resident(broker) - before < 40 * MEGABYTE, "3.6 GB were asked for"
        size = int.from_bytes(take(sock, 4), "big")
        assert size > 30 * MEGABYTE
        assert len(take(sock, size)) == size
    serves(broker)
