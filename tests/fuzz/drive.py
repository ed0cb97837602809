"""One target under atheris, coverage-guided: `python -m tests.fuzz.drive TARGET [libFuzzer options]`.

Owns nothing but the instrumentation; see `__main__` for how it is called and where crashers go.
"""

from __future__ import annotations

import importlib
import logging
import sys

import atheris  # type: ignore[import-untyped]

_INSTRUMENTED = ("protocol", "broker.log", "broker.server")


def main() -> None:
    name = sys.argv[1]
    logging.disable(logging.CRITICAL)
    with atheris.instrument_imports(include=list(_INSTRUMENTED)):
        target = importlib.import_module(f"tests.fuzz.{name}")
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target.one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
