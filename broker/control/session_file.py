"""Remembers this broker's ZooKeeper session in its data directory, so that a restart can end it at once.

A broker that was killed leaves a session that ZooKeeper keeps until it times out, and with it the
registration. Whoever holds the lock of the data directory knows that the earlier process is dead and may
end its session. A copy of the directory must not: the file names its own inode, which a copy does not have.
Must not talk to ZooKeeper.
"""

import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_log = logging.getLogger("isthmus.broker")
FILE_NAME = ".isthmus-session"


class Session(NamedTuple):
    """A session's number and the password that proves that it is ours."""

    session_id: int
    password: bytes


class SessionFile:
    def __init__(self, directory: Path | str) -> None:
        self._path = Path(directory) / FILE_NAME

    def read(self) -> Session | None:
        """The session of the earlier run, if the file is the one that it wrote."""
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                value = json.loads(file.read())
            if (value["device"], value["inode"]) != (status.st_dev, status.st_ino):
                return None
            return Session(int(value["session"]), bytes.fromhex(value["password"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("%s is ignored: %r", self._path, error)
            return None

    def write(self, session: Session) -> None:
        """Replace the file. A failure only costs the next start some waiting, so it is logged, not raised."""
        try:
            with suppress(FileNotFoundError):
                self._path.unlink()
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                status = os.fstat(file.fileno())
                value = {
                    "session": session.session_id,
                    "password": session.password.hex(),
                    "device": status.st_dev,
                    "inode": status.st_ino,
                }
                json.dump(value, file)
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._path, error)

    def remove(self) -> None:
        with suppress(OSError):
            self._path.unlink()
