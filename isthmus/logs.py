"""How processes log: one line an event on standard error, quiet libraries."""

from __future__ import annotations

import logging

from isthmus.output import printable


class _Printable(logging.Formatter):
    """What clients call themselves reaches the log, and with it a terminal. A name does not begin a line,
    either, which would look like another event; tracebacks do."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (its name there)
        return super().formatMessage(record).replace("\n", "\\n")

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def log_to_stderr(level: int = logging.INFO) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Printable("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("isthmus").setLevel(level)
