"""How processes log: one line an event on standard error, quiet libraries."""

from __future__ import annotations

import logging


def log_to_stderr(level: int = logging.INFO) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("isthmus").setLevel(level)
