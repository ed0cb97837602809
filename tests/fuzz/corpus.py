"""The corpus in the repository: which targets there are, and the inputs each begins from."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TARGETS: Final = ("requests", "batches", "log_directory", "dispatcher")
CORPUS: Final = Path(__file__).parent / "corpus"


def inputs(target: str) -> list[Path]:
    return sorted(path for path in (CORPUS / target).iterdir() if path.is_file())
