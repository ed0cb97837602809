"""How this broker's earlier run ended: cleanly, by a kill, or with its machine.

A clean stop leaves a marker in every log directory (`broker.log`). Without it the system's boot id tells
whether the page cache, and with it what was not yet on disk, has survived. A directory without that file is
new, or somebody's replacement: nothing is known of what should be in it.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

from broker.control.last_replica import PreviousEnd

_log = logging.getLogger("isthmus.broker")
FILE_NAME = ".isthmus-boot"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def previous_end(directories: Iterable[str], *, clean: bool, boot_id: str | None = None) -> PreviousEnd:
    """`clean` says that all directories have the marker; `boot_id` is asked of the system unless given."""
    if clean:
        return PreviousEnd.CLEAN
    now = boot_id or current_boot_id()
    same = bool(now) and all(_read(Path(path, FILE_NAME)) == now for path in directories)
    return PreviousEnd.KILLED if same else PreviousEnd.LOST


def remember_boot(directories: Iterable[str], boot_id: str | None = None) -> None:
    """For the next start. A failure makes that one more careful, so it is logged, not raised."""
    text = boot_id or current_boot_id()
    for path in directories:
        try:
            Path(path, FILE_NAME).write_text(text, encoding="utf-8")
        except OSError as error:
            _log.warning("%s in %s cannot be written: %s", FILE_NAME, path, error)


def current_boot_id() -> str:
    """Empty where the system has none."""
    return _read(_BOOT_ID)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
