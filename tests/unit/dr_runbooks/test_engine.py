"""The runbook engine: order, time limits, rollback, journal, saved results; and the loader's complaints."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dr_runbooks import registry
from dr_runbooks.engine import Context, Engine, Outcome
from dr_runbooks.journal import Journal, read_journal
from dr_runbooks.load import load_runbook
from dr_runbooks.registry import NotYet, StepFailed
from topology.load import parse_topology
from topology.problems import TopologyError
from topology.runtime import Runtime

CALLS: list[Any] = []


async def remember(context: Context, value: Any) -> dict[str, Any]:
    CALLS.append(value)
    return {"value": value}


async def refuse(context: Context) -> dict[str, Any]:
    raise StepFailed("the disk is full: make room")


async def stumble(context: Context) -> dict[str, Any]:
    raise FileNotFoundError("clients.json")


async def third_time(context: Context) -> dict[str, Any]:
    CALLS.append("asked")
    if len(CALLS) < 3:
        raise NotYet(f"only {len(CALLS)}")
    return {"asked": len(CALLS)}


async def never(context: Context) -> dict[str, Any]:
    raise NotYet("lag is 17")


@pytest.fixture(autouse=True)
def verbs() -> Iterator[None]:
    registry.verbs()
    before = dict(registry._REGISTERED)
    CALLS.clear()
    registry.action()(remember)
    registry.action()(refuse)
    registry.action()(stumble)
    registry.probe(third_time)
    registry.probe(never)
    yield
    registry._REGISTERED.clear()
    registry._REGISTERED.update(before)


async def run(folder: Path, steps: str, rollback: str = "[]") -> tuple[Outcome, list[dict[str, Any]]]:
    file = folder / "runbook.yaml"
    file.write_text(
        f"version: 1\ntitle: t\nparameters: {{who: east}}\nsteps: {steps}\nrollback: {rollback}\n"
    )
    topology = parse_topology(
        "{version: 1, name: t, data_directory: d, datacenters: {a: {}}, "
        "clusters: {c: {datacenter: a, bootstrap_servers: 'x:1'}}}"
    )
    context = Context(topology, Runtime(folder), file)
    with Journal(folder / "journal.jsonl") as journal:
        outcome = await Engine(context, journal).run(load_runbook(file))
    return outcome, read_journal(folder / "journal.jsonl")


async def test_steps_run_in_order_with_parameters_and_saved_results(tmp_path: Path) -> None:
    outcome, journal = await run(
        tmp_path,
        """
  - {name: a, action: remember, with: {value: "${who}"}, save: first}
  - {name: b, action: remember, with: {value: "again ${save.first.value}"}}""",
    )
    assert outcome.passed
    assert CALLS == ["east", "again east"]
    assert [event["event"] for event in journal] == [
        "run-started",
        *["step-started", "step-ended"] * 2,
        "run-ended",
    ]


async def test_a_failed_step_stops_the_run_and_rolls_back(tmp_path: Path) -> None:
    outcome, journal = await run(
        tmp_path,
        "[{name: a, action: refuse}, {name: b, action: remember, with: {value: 1}}]",
        "[{name: undo, action: remember, with: {value: undone}}]",
    )
    assert not outcome.passed
    assert CALLS == ["undone"]
    assert outcome.steps[0].error == "the disk is full: make room"
    assert journal[-1]["passed"] is False


async def test_a_step_may_fail_and_the_run_go_on_but_never_pass(tmp_path: Path) -> None:
    outcome, _ = await run(
        tmp_path,
        "[{name: a, action: refuse, on_failure: continue}, {name: b, action: remember, with: {value: 1}}]",
    )
    assert CALLS == [1]
    assert not outcome.passed


async def test_a_probe_is_asked_until_it_holds(tmp_path: Path) -> None:
    outcome, _ = await run(tmp_path, "[{name: a, probe: third_time, save: p}]")
    assert outcome.passed
    assert outcome.saved["p"] == {"asked": 3}


async def test_a_probe_that_never_holds_says_what_it_saw(tmp_path: Path) -> None:
    outcome, _ = await run(tmp_path, "[{name: a, probe: never, timeout_seconds: 0.3}]")
    assert outcome.steps[0].error == "not within 0.3 s: lag is 17"


def test_every_mistake_of_a_runbook_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        """\
version: 1
title: t
steps:
  - {name: a, action: remmember, with: {value: 1}}
  - {name: b, action: remember, with: {valu: 1}}
  - {name: c, probe: never, with: {x: "${nobody}"}}
"""
    )
    with pytest.raises(TopologyError) as caught:
        load_runbook(file)
    found = [(problem.line, problem.message) for problem in caught.value.problems]
    assert [line for line, _ in found] == [4, 5, 5, 6, 6]
    assert any("did you mean 'remember'?" in message for _, message in found)
    assert any("there is no parameter 'nobody'" in message for _, message in found)


def test_a_wrong_shape_is_named_once_and_nothing_of_it_is_hidden(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("version: 1\ntitle: t\nparameters: [1]\nsteps:\n  - 5\n  - {name: b, verify: x}\n")
    with pytest.raises(TopologyError) as caught:
        load_runbook(file)
    found = [str(problem) for problem in caught.value.problems]
    assert [line.partition(":")[0] for line in found] == ["line 3", "line 5", "line 6"]
    assert "parameters: has to be a mapping" in found[0]


def test_a_journal_is_never_overwritten(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.jsonl") as journal:
        journal.write("run-started", 1.0)
    with pytest.raises(FileExistsError):
        Journal(tmp_path / "j.jsonl")
    assert len(read_journal(tmp_path / "j.jsonl")) == 1


def test_a_journal_cut_short_by_a_crash_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path) as journal:
        journal.write("run-started", 1.0, title="t")
    with path.open("a") as file:
        file.write('{"event": "step-st')
    assert [event["event"] for event in read_journal(path)] == ["run-started"]


async def test_an_error_that_nobody_foresaw_is_rolled_back_and_recorded_too(tmp_path: Path) -> None:
    outcome, events = await run(
        tmp_path,
        "[{name: move, action: stumble}, {name: after, action: remember, with: {value: 1}}]",
        "[{name: back, action: remember, with: {value: undone}}]",
    )
    assert not outcome.passed
    assert CALLS == ["undone"]
    assert [step.name for step in outcome.rolled_back] == ["back"]
    assert "clients.json" in (outcome.steps[0].error or "")
    assert [event["event"] for event in events][-1] == "run-ended"


def test_the_way_back_is_told_with_the_parameters_filled_in() -> None:
    runbook = load_runbook(Path(__file__).parents[3] / "dr_runbooks" / "failover.yaml", {"lost": "north"})
    assert "return.yaml --set lost=north" in runbook.way_back
    assert "${" not in runbook.way_back
