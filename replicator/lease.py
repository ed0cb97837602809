"""Who runs a link: a lease among the link's own records at the target, so that two never copy at once.

Owns the rules, pure. There is no compare-and-set in a Kafka log, but its order decides: a claim carries a
term, one higher than the term it ends, and of several claims of one term the first in the log counts. Whoever
reads a higher term than its own has lost the link. Time is the reader's own: a lease has run out when nothing
was heard of it for `TTL_S`, whatever other clocks say; the process of a killed link on the same machine is
known to be dead at once. Must not do I/O on clusters.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

_log = logging.getLogger("isthmus.replicator")

TTL_S = 10.0
RENEW_S = 2.0


@dataclass(frozen=True, slots=True)
class Lease:
    """One record. `machine` and `started` tell whether the owner's process still lives, if it is one here."""

    term: int
    owner: str
    pid: int = 0
    host: str = ""
    machine: str = ""
    started: str = ""
    since_ms: int = 0
    released: bool = False

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since_ms / 1000))
        return f"process {self.pid} on {self.host}, since {since}"


class LeaseHeld(Exception):
    """Another process runs this link."""

    def __init__(self, link: str, holder: Lease, or_else: str = "") -> None:
        super().__init__(
            f"link {link} is run by {holder} already: stop that one first, a link has one owner{or_else}"
        )


class LeaseLost(Exception):
    """Another process has taken the link over."""

    def __init__(self, link: str, holder: Lease | None) -> None:
        who = f"was taken over by {holder}" if holder is not None else "was given up"
        super().__init__(f"link {link} {who}: this process stops copying")


class LeaseView:
    """What the records say, applied in the order of the log."""

    def __init__(self) -> None:
        self.term = 0
        self.holder: Lease | None = None
        self.heard = 0
        """How many records came: more of them means that somebody lives."""

    def apply(self, value: bytes | None) -> None:
        """Takes in one record; one that cannot be read counts for nothing, aloud."""
        self.heard += 1
        if value is None:
            return
        try:
            lease = Lease(**json.loads(value))
            newer = lease.term > self.term
        except (TypeError, ValueError) as error:
            _log.error("a lease of a link cannot be read: %r", error)
            return
        if newer or (self.holder is not None and (lease.term, lease.owner) == (self.term, self.holder.owner)):
            self.term = lease.term
            self.holder = None if lease.released else lease

    def claim(self) -> Lease:
        """A claim of this process that would end the present lease."""
        return Lease(
            self.term + 1,
            str(uuid4()),
            os.getpid(),
            socket.gethostname(),
            this_machine(),
            process_start(os.getpid()),
            time.time_ns() // 1_000_000,
        )

    @property
    def free(self) -> bool:
        """Nobody holds it, or a process of this machine that is dead."""
        return self.holder is None or is_dead(self.holder)


def is_dead(lease: Lease) -> bool:
    """Whether the owner was a process of this machine and does not live any more; False when in doubt."""
    if not lease.machine or not lease.started or lease.machine != this_machine():
        return False
    return process_start(lease.pid) != lease.started


def this_machine() -> str:
    """Names this boot of this machine and the process numbers that are valid here; empty where unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def process_start(pid: int) -> str:
    """When the process began (in the kernel's ticks), empty when there is none: numbers are used again."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    words = line.rpartition(")")[2].split()  # the name before it may hold anything
    return "" if words[0] in ("Z", "X") else words[19]
