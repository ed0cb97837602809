"""What `isthmus audit` prints: nothing that makes its exit code may be missing from it."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from audit.result import AuditResult, Counts, DifferenceClass, PartitionResult
from audit.settings import AuditSettings
from isthmus.commands.audit import audit as command

TOPOLOGY = """
version: 1
name: two
data_directory: data
datacenters: {here: {}}
clusters:
  east: {datacenter: here, bootstrap_servers: "127.0.0.1:1"}
  west: {datacenter: here, bootstrap_servers: "127.0.0.1:2"}
links: {"east->west": {topics: [t]}}
"""


def result(totals: Counts, incomplete: tuple[str, ...] = ()) -> AuditResult:
    def part(number: int, counts: Counts, *, complete: bool) -> PartitionResult:
        return PartitionResult(
            source_topic="t",
            target_topic="east.t",
            partition=number,
            source_range=(0, 9),
            target_range=(0, 9),
            counts=counts,
            complete=complete,
        )

    return AuditResult(
        source="east",
        target="west",
        alignment="link",
        totals=totals,
        partitions=(part(0, totals, complete=True), *(part(1, Counts(), complete=False) for _ in incomplete)),
        differences=(),
        incomplete=incomplete,
        missing_topics=(),
        tolerated=(),
        notes=(),
        phases={},
    )


@pytest.fixture
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "topology.yaml"
    file.write_text(TOPOLOGY)

    app = typer.Typer()
    app.command()(command)

    def run(found: AuditResult, *words: str):
        monkeypatch.setattr("audit.run.run_audit", lambda _: found)
        return CliRunner().invoke(app, ["--link", "east->west", "--topic", "t", "-f", str(file), *words])

    return run


@pytest.mark.parametrize("kind", DifferenceClass)
def test_each_class_of_differences_has_its_number(audit, kind):
    done = audit(result(Counts(compared=900, matched=893, **{kind.value: 7})))
    columns, first, last, *_, verdict = done.stdout.splitlines()[1:]
    assert kind.value in columns.split()
    assert first.split()[5:].count("7") == last.split()[2:].count("7") == 1
    assert (verdict, done.exit_code) == ("not the same", 3)


def test_what_is_not_compared_is_said(audit):
    done = audit(result(Counts(compacted=3, expired_target=20, pending_source=500, pending_target=2)))
    assert "compacted" in done.stdout
    assert (
        "not compared: 20 records that the target has dropped since, 500 offsets at the source that are not"
        " copied yet, 2 offsets at the target behind what is on record"
    ) in done.stdout
    assert done.stdout.splitlines()[-1] == "clean, as far as it was compared"
    assert audit(result(Counts(compared=5, matched=5))).stdout.splitlines()[-1] == "clean"
    done = audit(result(Counts(gaps_unknown=1)))
    assert (done.exit_code, "nobody knows how much they are: 1" in done.stdout) == (3, True)


def test_a_partition_that_was_not_read_shows_no_zeros(audit):
    done = audit(result(Counts(compared=5, matched=5), incomplete=("t-1: away",)))
    assert [line.split()[3:] for line in done.stdout.splitlines()[2:4]] == [
        ["0", "5", "0", "0", "0", "0"],
        ["1", "-", "-", "-", "-", "-"],
    ]
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (1, "incomplete")


def test_machines_get_the_verdict_too(audit):
    for totals, expected in ((Counts(lost=1), 3), (Counts(), 0)):
        done = audit(result(totals), "--json")
        said = json.loads(done.stdout)
        assert (said["exit_code"], said["clean"], done.exit_code) == (expected, not expected, expected)
        assert said["lost"] == said["totals"]["lost"] == totals.lost


def test_a_class_that_is_none_is_refused_before_anything_is_read(audit):
    done = audit(result(Counts()), "--tolerate", "duplicates")
    assert done.exit_code == 2
    assert "--tolerate duplicates: the classes are lost, duplicate" in done.output


@pytest.mark.parametrize(
    ("said", "ignored", "origins"),
    [
        ("", (), "none"),
        ("naming: identity, origin_headers: true", ("isthmus-origin",), "others"),
        ("naming: identity, origin_headers: true, origin_headers_ignored: true", ("isthmus-origin",), "all"),
    ],
)
def test_what_a_link_adds_to_records_and_does_not_copy_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, ignored: tuple[str, ...], origins: str
) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(TOPOLOGY.replace("topics: [t]", f"topics: [t], {said}" if said else "topics: [t]"))
    asked: list[AuditSettings] = []

    def run_audit(settings: AuditSettings) -> AuditResult:
        asked.append(settings)
        return result(Counts())

    monkeypatch.setattr("audit.run.run_audit", run_audit)
    app = typer.Typer()
    app.command()(command)
    done = CliRunner().invoke(app, ["--link", "east->west", "--topic", "t", "-f", str(file)])
    assert done.exit_code == 0, done.output
    assert asked[0].ignore_headers == ignored
    assert asked[0].alignment.model_dump()["origins"] == origins
