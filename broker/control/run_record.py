"""Whether the log directories are those of this broker's last run, or older ones that somebody has put back.

A restored copy or snapshot looks like a clean stop, or a kill, and lacks what was acknowledged since; its
broker must not lead by being in the ISR (I1). Each run leaves a token in its directories and in ZooKeeper,
where it does not go back in time. A copy made within a run has the run's token, but another inode; that
counts where no clean stop followed, because a directory may be moved to another disk after one. Must not
know what follows.
"""

import json
import logging
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from broker.control import paths
from broker.control.over_sessions import over_sessions
from broker.control.zookeeper import ZooKeeper

_log = logging.getLogger("isthmus.broker")
FILE_NAME = ".isthmus-run"


class RunRecord:
    """Of one broker and its log directories."""

    def __init__(self, zookeeper: ZooKeeper, broker_id: int, directories: Sequence[str]) -> None:
        self._zookeeper = zookeeper
        self._path = paths.broker_run(broker_id)
        self._files = [Path(directory, FILE_NAME) for directory in directories]
        self._known = ""

    async def outdated(self, *, clean: bool) -> bool:
        """Whether a directory is not as the last run left it; `clean`: each has the marker of a clean stop.

        A ZooKeeper tree without a record tells nothing.
        """
        node = await self._zookeeper.get(self._path)
        self._known = "" if node is None else node.data.decode(errors="replace")
        if not self._known:
            return False
        for file in self._files:
            if not _is_of(file, self._known, moved=clean):
                _log.warning(
                    "%s is not as this broker's last run left it: replicas here may lack acknowledged "
                    "records, so others lead, and where there is no other a person has to say so",
                    file.parent,
                )
                return True
        return False

    async def begin(self) -> None:
        """This run's token, once a controller knows how the run before ended."""
        token = secrets.token_hex(16)
        for file in self._files:
            _write(file, {"token": token, "before": self._known})
        # Whoever is registered loses a session without an end.
        await over_sessions(
            self._zookeeper, lambda: self._zookeeper.put(self._path, token.encode()), None, self._path
        )


def _is_of(file: Path, token: str, *, moved: bool) -> bool:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        # A crash in `begin` leaves the run before in ZooKeeper.
        return token in (found["token"], found["before"]) and (moved or found["inode"] == file.stat().st_ino)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _write(file: Path, content: dict[str, Any]) -> None:
    """A failure makes the next start more careful, so it is logged, not raised."""
    try:
        with suppress(FileNotFoundError):
            file.unlink()
        with file.open("x", encoding="utf-8") as output:
            json.dump({**content, "inode": os.fstat(output.fileno()).st_ino}, output)
    except OSError as error:
        _log.warning("%s cannot be written: %s", file, error)
