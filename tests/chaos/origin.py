"""Who dials: the process at the other end of a loopback connection, by what the kernel shows in /proc.

A broker advertises one address to everybody, so the port alone does not say which broker, client or ZooKeeper
server has connected to it; cuts between two of them need to know. Linux only, and only for processes of one's
own. Must not know what is done with the answer.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))  # Java's sockets are in the second


def dialer(port: int, dialled: int, names: Mapping[int, str]) -> str | None:
    """Whose socket has local `port` and remote port `dialled`; `names` by process id."""
    inode = _inode(port, dialled)
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    return next((name for pid, name in names.items() if wanted in _sockets(pid)), None)


def _inode(port: int, dialled: int) -> str | None:
    local, remote = f":{port:04X}", f":{dialled:04X}"
    for table in _TABLES:
        with contextlib.suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()
                if fields[1].endswith(local) and fields[2].endswith(remote):
                    return fields[9]
    return None


def _sockets(pid: int) -> Iterable[str]:
    directory = f"/proc/{pid}/fd"
    try:
        for entry in os.listdir(directory):
            with contextlib.suppress(OSError):  # closed since
                yield os.readlink(f"{directory}/{entry}")
    except OSError:  # the process has ended
        return
