"""What every foreign suite has in common: command line, broker, allow-list, report card, exit code.

A suite is a folder with `run.py`, `tests.allow` and `FINDINGS.md` (README.md beside this file has the rules).
Knows nothing about any suite. Exit codes: 0 all allow-listed tests passed, 1 not, 77 the tool chain is
missing.
"""

import argparse
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from os import environ
from pathlib import Path

import pytest

from tests.support.apache_kafka import apache_kafka
from tests.support.broker import BrokerProcess
from tests.support.zookeeper import fresh_chroot, start_zookeeper

PASSED, FAILED, MISSING = 0, 1, 77
_STATES = ("passed", "failed", "skipped", "unavailable")


class ToolChainMissing(Exception):
    """What the suite is built or run with cannot be had; the text says what."""


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    status: str
    """passed, failed, skipped, or unavailable: what this test needs beside the suite cannot be had here"""
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for. `names` is None for every test; `allowed` is tests.allow: name → quick."""

    suite: str
    names: tuple[str, ...] | None
    quick: bool
    against: str
    allowed: Mapping[str, bool] = field(default_factory=dict)
    scratch: Path = field(default_factory=Path)

    def chosen(self, every: Iterable[str]) -> list[str]:
        """The tests to run, in the suite's order; a name that the suite does not have is an error."""
        known = list(every)
        if self.names is None:
            return known
        unknown = set(self.names) - set(known)
        if unknown:
            raise SystemExit(f"{self.suite} has no {', '.join(sorted(unknown))}")
        return [name for name in known if name in self.names]

    @contextmanager
    def broker(self, settings: Mapping[str, str] | None = None) -> Iterator[str]:
        """Bootstrap address of a fresh broker: ours, or Apache Kafka with the same settings."""
        given = dict(settings or {})
        if self.against == "kafka":
            with apache_kafka(self.suite, *(f"{name}={text}" for name, text in given.items())) as bootstrap:
                yield bootstrap
            return
        directory = Path(tempfile.mkdtemp(prefix="broker-", dir=self.scratch))
        zookeeper = start_zookeeper(directory / "zookeeper")
        process = BrokerProcess(directory / "broker", fresh_chroot(zookeeper), 1, settings=given)
        try:
            yield process.start().bootstrap
        finally:
            process.kill()
            zookeeper.stop()
            if kept := environ.get("ISTHMUS_KEEP_OUTPUT"):  # a folder; for a person who looks for a cause
                Path(kept).mkdir(parents=True, exist_ok=True)
                Path(kept, f"{self.suite}-broker.log").write_text(process.output)


def cache(suite: str) -> Path:
    """Where a suite keeps what it has downloaded and built."""
    home = Path(environ.get("INTEROP_HOME", Path.home() / ".cache" / "isthmus-interop"))
    folder = home / suite
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def need(*programs: str) -> None:
    """Raise ToolChainMissing unless all are on PATH."""
    absent = [program for program in programs if shutil.which(program) is None]
    if absent:
        raise ToolChainMissing(f"no {', '.join(absent)} on PATH")


def build_step(
    command: Sequence[str],
    directory: Path,
    log: Path,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> None:
    """One step of getting or building a suite. Its output goes to `log`; failure is a missing tool chain."""
    with log.open("ab") as output:
        try:
            done = subprocess.run(
                command,
                cwd=directory,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ToolChainMissing(f"{' '.join(command)}: not done within {timeout_s:.0f} s") from None
    if done.returncode != 0:
        raise ToolChainMissing(f"{' '.join(command)} ended with {done.returncode}, see {log}")


def read_allow_list(path: Path) -> dict[str, bool]:
    """Test name → whether it belongs to the short cut."""
    lines = (
        (line.partition("#")[0].split() for line in path.read_text().splitlines()) if path.exists() else ()
    )
    found: dict[str, bool] = {}
    for words in lines:
        if not words:
            continue
        if len(words) > 2 or words[1:] not in ([], ["quick"]):
            raise SystemExit(f"{path}: {' '.join(words)!r} is not 'NAME' or 'NAME quick'")
        if words[0] in found:
            raise SystemExit(f"{path}: {words[0]} stands there twice")
        found[words[0]] = len(words) == 2
    return found


def main(folder: Path, tests: Callable[[Options], Iterable[Result]], version: str = "") -> int:
    """Run a suite as its command line says, print and write its report card, return the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.interop.{folder.name}.run")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these tests")
    parser.add_argument("--allowed", action="store_true", help="only what tests.allow lists")
    parser.add_argument("--quick", action="store_true", help="only what tests.allow marks quick")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report card there too")
    parser.add_argument("--against", choices=("isthmus", "kafka"), default="isthmus")
    given = parser.parse_args()
    allowed = read_allow_list(folder / "tests.allow")
    names = tuple(given.names) or None
    if given.quick:
        names = tuple(name for name, quick in allowed.items() if quick)
    elif given.allowed:
        names = tuple(allowed)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-") as scratch:
        options = Options(folder.name, names, given.quick, given.against, allowed, Path(scratch))
        results, missing = _run(tests, options)
    card = _card(folder, options, version, results, missing)
    _print(card)
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(card, indent=1) + "\n")
    if missing is not None:
        return MISSING
    passed = {result.name for result in results if result.status in ("passed", "unavailable")}
    wanted = set(allowed) & (set(allowed) if names is None else set(names))
    lost = sorted(wanted - passed)
    if lost:
        print(f"{folder.name}: allow-listed and not passed: {', '.join(lost)}", flush=True)
    return FAILED if lost else PASSED


def _run(tests: Callable[[Options], Iterable[Result]], options: Options) -> tuple[list[Result], str | None]:
    results: list[Result] = []
    try:
        for result in tests(options):
            results.append(result)
            line = f"{options.suite} {result.name}: {result.status} {result.seconds:.1f} s {result.note}"
            print(line.rstrip(), flush=True)
    except ToolChainMissing as missing:
        return results, str(missing)
    except pytest.skip.Exception as missing:  # what tests.support says when Kafka or Java cannot be had
        return results, str(missing)
    return results, None


def _card(
    folder: Path, options: Options, version: str, results: Sequence[Result], missing: str | None
) -> dict[str, object]:
    findings = folder / "FINDINGS.md"
    words = set(re.findall(r"[\w.:\[\]-]+", findings.read_text())) if findings.exists() else set()
    return {
        "suite": folder.name,
        "version": version,
        "against": options.against,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "missing": missing,
        **{status: sum(r.status == status for r in results) for status in _STATES},
        "tests": [
            {**asdict(result), "allowed": result.name in options.allowed, "explained": result.name in words}
            for result in results
        ],
    }


def _print(card: Mapping[str, object]) -> None:
    where = f"{card['suite']} {card['version']} against {card['against']}"
    if card["missing"] is not None:
        print(f"{where}: NOT RUN: {card['missing']}", flush=True)
        return
    print(
        f"{where}: {card['passed']} passed, {card['failed']} failed, {card['skipped']} skipped,"
        f" {card['unavailable']} without their tools",
        flush=True,
    )
    tests = card["tests"]
    assert isinstance(tests, list)
    for test in tests:
        if test["status"] == "passed" and not test["allowed"]:
            print(f"  {test['name']} passes and is not in tests.allow", flush=True)
        elif test["status"] != "passed" and not test["allowed"]:
            why = "see FINDINGS.md" if test["explained"] else "NOT EXPLAINED in FINDINGS.md"
            print(f"  {test['name']} {test['status']}: {why}", flush=True)
