"""Who dials: the process at the other end of a loopback connection, by what the kernel shows.

A broker advertises one address to everybody, so the port alone does not say which broker, client or ZooKeeper
server has connected to it; cuts between two of them need to know. Linux only, and only for processes of one's
own. Must not know what is done with the answer.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterable, Mapping

# Of netlink's sock_diag(7). Java's sockets, of IPv6 with an address of IPv4, are found the same way.
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST = 1
_HEADER_BYTES = 16
_INODE_AT = 84
_ANY_INTERFACE_AND_COOKIE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)


def dialer(port: int, dialled: int, names: Mapping[int, str]) -> str | None:
    """Whose socket has local `port` and remote port `dialled`; `names` by process id."""
    inode = _inode(port, dialled)
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    return next((name for pid, name in names.items() if wanted in _sockets(pid)), None)


def _inode(port: int, dialled: int) -> str | None:
    """The kernel is asked about this one connection: its tables have thousands of others, which took six
    milliseconds for each and held up a relay with little processor time for minutes.
    """
    address = socket.inet_aton("127.0.0.1")
    ends = struct.pack(">HH4s12x4s12x", port, dialled, address, address) + _ANY_INTERFACE_AND_COOKIE
    asked = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + ends
    header = struct.pack("=IHHII", _HEADER_BYTES + len(asked), _SOCK_DIAG_BY_FAMILY, _REQUEST, 1, 0)
    with contextlib.suppress(OSError), _diagnosis() as kernel:
        kernel.send(header + asked)
        answer = kernel.recv(4096)
        if struct.unpack_from("=H", answer, 4)[0] == _SOCK_DIAG_BY_FAMILY:
            return str(struct.unpack_from("=I", answer, _INODE_AT)[0])
    return None


def _diagnosis() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)


def _sockets(pid: int) -> Iterable[str]:
    directory = f"/proc/{pid}/fd"
    try:
        for entry in os.listdir(directory):
            with contextlib.suppress(OSError):  # closed since
                yield os.readlink(f"{directory}/{entry}")
    except OSError:  # the process has ended
        return
