"""A foreign suite that is run by pytest: an environment of its own, one process, results from its JUnit file.

Used by the suites of Python clients. Names are `MODULE:TEST` or `MODULE:CLASS:TEST`, without `test_`.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from tests.interop.suite import Options, Result, ToolChainMissing, build_step, cache

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
_BUILD_TIMEOUT_S = 600.0
_LIMIT_S = 2400.0


def make_environment(suite: str, requirements: Sequence[str]) -> Path:
    """Make the virtual environment of a suite and return its Python interpreter."""
    folder = cache(suite)
    interpreter = folder / "venv" / "bin" / "python"
    log = folder / "build.log"
    make = [sys.executable, "-m", "venv", "--clear", "--without-pip", "venv"]
    build_step(make, folder, log, _BUILD_TIMEOUT_S)
    install = [*PIP, "--python", str(interpreter), "install", "-q", "--only-binary", ":all:", *requirements]
    build_step(install, folder, log, _BUILD_TIMEOUT_S)
    return interpreter


@dataclass(frozen=True, slots=True)
class PytestSuite:
    """`paths` are what pytest collects in `source`; `environment` tells the tests where the broker is."""

    interpreter: Path
    source: Path
    paths: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
        """Output of one pytest process."""
        given = {**os.environ, **self.environment, **(environment or {})}
        given.pop("PYTEST_ADDOPTS", None)
        command = [str(self.interpreter), "-m", "pytest", *self.arguments, *arguments]
        try:
            done = subprocess.run(
                command,
                cwd=self.source,
                env=given,
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "not done in time"
        return done.stdout + done.stderr

    def ids(self) -> dict[str, str]:
        """Our name of each test → pytest's."""
        output = self.run("--collect-only", "-q", *self.paths)
        ids = [line.strip() for line in output.splitlines() if "::" in line]
        if not ids:
            raise ToolChainMissing(f"the tests cannot be collected: {output[-300:]}")
        return {short_name(each): each for each in ids}

    def results(
        self, options: Options, chosen: Sequence[str], environment: Mapping[str, str]
    ) -> Iterator[Result]:
        """Run the tests of these names. The output is kept in the suite's cache folder as last-run.log."""
        ids = self.ids()
        report = options.scratch / "report.xml"
        output = self.run(
            "-q", f"--junitxml={report}", *(ids[name] for name in chosen), environment=environment
        )
        (cache(options.suite) / "last-run.log").write_text(output)
        if not report.exists():
            raise ToolChainMissing(f"pytest wrote no report: {output[-300:]}")
        found = _read(report)
        for name in chosen:
            status, seconds, note = found.get(name, ("failed", 0.0, "pytest did not report it"))
            yield Result(name, status, seconds, note)


def short_name(node_id: str) -> str:
    path, _, test = node_id.partition("::")
    return f"{Path(path).stem.removeprefix('test_')}:{test.replace('::', ':')}".replace(" ", "_")


def _read(report: Path) -> dict[str, tuple[str, float, str]]:
    """Our name → (status, seconds, note)."""
    found: dict[str, tuple[str, float, str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        parts = case.get("classname", "").split(".")
        start = next(
            (number for number, part in enumerate(parts) if part.startswith("test_")), len(parts) - 1
        )
        module, *classes = parts[start:]
        name = ":".join([module.removeprefix("test_"), *classes, case.get("name", "")]).replace(" ", "_")
        status, note = "passed", ""
        for kind, word in (("skipped", "skipped"), ("failure", "failed"), ("error", "failed")):
            if (element := case.find(kind)) is not None:
                lines = element.get("message", "").splitlines() or [""]
                status, note = word, lines[0][:200]
        if found.get(name, ("",))[0] != "failed":  # an error at the end stands beside a test that passed
            found[name] = (status, float(case.get("time", 0)), note)
    return found
