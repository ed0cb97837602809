"""What ZooKeeper gives, takes and refuses, in our words: errors, session events, nodes, operations.

Must not know kazoo or Kafka's paths.
"""

from enum import Enum
from typing import NamedTuple


class ZooKeeperError(Exception):
    """A ZooKeeper command failed; the message names the path."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class ZooKeeperUnavailable(ZooKeeperError):
    """No server answered within the connection timeout."""


class SessionExpired(ZooKeeperError):
    """The session is gone, and with it every ephemeral node of ours."""


class NodeExists(ZooKeeperError):
    pass


class NoNode(ZooKeeperError):
    pass


class BadVersion(ZooKeeperError):
    """Somebody else wrote the node since its version was read."""


class NotEmpty(ZooKeeperError):
    pass


class SessionEvent(Enum):
    SUSPENDED = "connection lost, the session may live on"
    RESUMED = "connected again, same session"
    EXPIRED = "session lost"
    RENEWED = "connected again, new session"


class Node(NamedTuple):
    """A node as read. `owner` is the session of an ephemeral node, else 0; `created` its creation zxid,
    `modified` that of the last change of its data.
    """

    data: bytes
    version: int
    owner: int
    created: int
    created_ms: int
    modified: int = 0


class Create(NamedTuple):
    path: str
    data: bytes = b""
    ephemeral: bool = False


class Set(NamedTuple):
    path: str
    data: bytes
    version: int = -1


class Delete(NamedTuple):
    path: str
    version: int = -1


class Check(NamedTuple):
    path: str
    version: int


Operation = Create | Set | Delete | Check
