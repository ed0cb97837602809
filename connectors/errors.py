"""The exceptions of backup and restore: each says what happened, where, and what to do."""

from __future__ import annotations

from protocol.errors import NotThere


class ConnectorError(Exception):
    """Base of everything this package raises on purpose."""


class ObjectStoreError(ConnectorError):
    """An S3 call failed for good. Names bucket, key and endpoint."""

    def __init__(self, action: str, where: str, cause: str) -> None:
        super().__init__(f"cannot {action} {where}: {cause}")
        self.where = where


class ObjectMissing(ObjectStoreError):
    """The object does not exist."""


class ObjectExists(ObjectStoreError):
    """A conditional write found the object there already."""


class BackupError(ConnectorError):
    """A backup could not be taken; nothing was added to the catalogue."""


class NoSuchBackup(BackupError, NotThere):
    """The store has no backup with that id."""


class NoSuchTopic(BackupError, NotThere):
    """The cluster has no topic of that name."""


class DamagedBackup(ConnectorError):
    """What the object store holds is not what the manifest says."""


class RestoreRefused(ConnectorError):
    """A restore was not begun: the target does not allow it. Lists every reason."""

    def __init__(self, backup_id: str, reasons: list[str]) -> None:
        super().__init__(f"restore of {backup_id} refused: " + "; ".join(reasons))
        self.reasons = reasons


class NotHeld(RestoreRefused, NotThere):
    """The same, and among the reasons is a topic that was named and is not in the backup."""


class RestoreError(ConnectorError):
    """A restore broke off after it had begun; the same command goes on where it stopped."""
