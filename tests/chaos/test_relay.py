"""The relay holds what it should hold, delivers it late and in order, and knows who has dialled."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.chaos.network import Fault, Network, both, flows

_QUIET_S = 0.3
_BOUND_S = 40.0
BYE = b"bye"


class Echo:
    """Sends back what it gets, on a port of its own; closes the connection after `BYE`."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
                    if data == BYE:
                        return
            except OSError:
                return

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(_BOUND_S)


@pytest.fixture
def network() -> Iterator[Network]:
    """`b1` is an echo; this process dials as `b2`."""
    echo = Echo()
    with Network() as made:
        made.listen("b1")
        made.point("b1", echo.port)
        made.name(os.getpid(), "b2")
        yield made
    echo.close()


@pytest.fixture
def connection(network: Network) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", network.ports["b1"]), _BOUND_S) as made:
        yield made


def echoes(connection: socket.socket, data: bytes) -> bool:
    connection.sendall(data)
    return received(connection, len(data)) == data


def received(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (part := connection.recv(size - len(found))):
        found += part
    return found


def is_quiet(connection: socket.socket) -> bool:
    connection.settimeout(_QUIET_S)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(_BOUND_S)
    return False


def test_everything_passes(connection: socket.socket) -> None:
    data = os.urandom(3_000_000)
    threading.Thread(target=connection.sendall, args=(data,)).start()
    assert received(connection, len(data)) == data


@pytest.mark.parametrize("wires", [flows("b1", "b2"), flows("b2", "b1"), both("b1", "b2")])
def test_what_is_held_comes_late(
    network: Network, connection: socket.socket, wires: list[tuple[str, str, str]]
) -> None:
    assert echoes(connection, b"before")
    with network.disturbed(wires, Fault(held=True)):
        connection.sendall(b"one")
        assert is_quiet(connection)
        connection.sendall(b"two")
    assert received(connection, 6) == b"onetwo"


def test_a_cut_between_others_is_not_ours(network: Network, connection: socket.socket) -> None:
    with network.disturbed([*both("b1", "b3"), *both("b1", "client")], Fault(held=True)):
        assert echoes(connection, b"data")


def test_who_has_no_name_is_a_client(network: Network) -> None:
    network.name(os.getpid(), "client")
    with (
        network.disturbed(both("b1", "client"), Fault(held=True)),
        socket.create_connection(("127.0.0.1", network.ports["b1"]), _BOUND_S) as connection,
    ):
        connection.sendall(b"data")
        assert is_quiet(connection)


def test_two_faults_on_one_wire(network: Network, connection: socket.socket) -> None:
    wires = both("b1", "b2")
    with network.disturbed(wires, Fault(held=True)):
        with network.disturbed(wires, Fault(held=True)):
            connection.sendall(b"data")
        assert is_quiet(connection)
    assert received(connection, 4) == b"data"


def test_an_end_is_not_heard_of_through_a_cut(network: Network, connection: socket.socket) -> None:
    """What was sent before the sender went away arrives after the cut, and then the end."""
    assert echoes(connection, b"before")
    with network.disturbed(flows("b1", "b2"), Fault(held=True)):
        connection.sendall(BYE)
        assert is_quiet(connection)
    assert received(connection, len(BYE) + 1) == BYE


def test_refused(network: Network, connection: socket.socket) -> None:
    assert echoes(connection, b"before")
    with network.disturbed(both("b1", "b2"), Fault(refused=True)):
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
        with (
            pytest.raises(ConnectionResetError),  # while connecting, or behind that
            socket.create_connection(("127.0.0.1", network.ports["b1"]), _BOUND_S) as another,
        ):
            another.recv(1)
    with socket.create_connection(("127.0.0.1", network.ports["b1"]), _BOUND_S) as another:
        assert echoes(another, b"data")


def test_delay(network: Network, connection: socket.socket) -> None:
    with network.disturbed(both("b1", "b2"), Fault(delay_s=0.2)):
        began = time.monotonic()
        assert echoes(connection, b"data")
        assert time.monotonic() - began >= 0.4


def test_bandwidth(network: Network, connection: socket.socket) -> None:
    with network.disturbed(flows("b2", "b1"), Fault(bytes_per_s=100_000)):
        began = time.monotonic()
        for _ in range(5):
            assert echoes(connection, bytes(10_000))
        assert time.monotonic() - began >= 0.35


def test_a_target_that_is_down(network: Network) -> None:
    network.point("b1", 1)
    with (
        pytest.raises(ConnectionResetError),  # while it still connects, or when it reads
        socket.create_connection(("127.0.0.1", network.ports["b1"]), _BOUND_S) as connection,
    ):
        connection.recv(1)
