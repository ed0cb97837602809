"""What the programs that write a page of docs/ have in common: write it, or say that it is behind."""

import argparse
from pathlib import Path


def write_or_check(document: Path, text: str, program: str) -> int:
    """Exit code of `program` (as `python -m` takes it): with --check 1 where `document` is not `text`."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=f"Writes {document}.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 when it is behind")
    if not parser.parse_args().check:
        document.write_text(text, encoding="utf-8")
        return 0
    if document.exists() and document.read_text(encoding="utf-8") == text:
        return 0
    print(f"{document} is behind: run python -m {program}")
    return 1
