"""Where Unix sockets of a topology are: their paths are limited to 107 bytes by the kernel."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

_PATH_LIMIT = 100


def short_socket_path(path: Path) -> Path:
    """`path`, or for one that is too long its stand-in in the temporary directory."""
    if len(str(path)) <= _PATH_LIMIT:
        return path
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"isthmus-{digest}.sock"
