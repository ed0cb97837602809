"""The runbook engine: order, time limits, rollback, journal, saved results; and the loader's complaints."""

import asyncio
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


async def hang_up(context: Context) -> dict[str, Any]:
    raise TimeoutError("[Errno 110] Connection timed out")


async def wait_for_ever(context: Context) -> dict[str, Any]:
    CALLS.append("waiting")
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def count(context: Context, times: int, names: list[str]) -> dict[str, Any]:
    CALLS.append((times, names))
    return {}


async def look(context: Context, cluster: str, links: list[str]) -> dict[str, Any]:
    return {}


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
    registry.probe(look)
    for verb in (hang_up, wait_for_ever, count):
        registry.action()(verb)
    yield
    registry._REGISTERED.clear()
    registry._REGISTERED.update(before)


TOPOLOGY = (
    "{version: 1, name: t, data_directory: d, datacenters: {a: {}}, "
    "clusters: {c: {datacenter: a, bootstrap_servers: 'x:1'}, d: {datacenter: a, bootstrap_servers: 'y:1'}}, "
    "links: {c->d: {topics: [t]}}}"
)


async def run(folder: Path, steps: str, rollback: str = "[]") -> tuple[Outcome, list[dict[str, Any]]]:
    file = folder / "runbook.yaml"
    file.write_text(
        f"version: 1\ntitle: t\nparameters: {{who: east}}\nsteps: {steps}\nrollback: {rollback}\n"
    )
    topology = parse_topology(TOPOLOGY)
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


def problems(file: Path, text: str, **given: str) -> list[tuple[int, str]]:
    file.write_text("version: 1\ntitle: t\n" + text)
    with pytest.raises(TopologyError) as caught:
        load_runbook(file, given, parse_topology(TOPOLOGY))
    return [(problem.line, problem.message) for problem in caught.value.problems]


def test_arguments_of_another_type_are_told_before_anything_runs(tmp_path: Path) -> None:
    found = problems(
        tmp_path / "r.yaml",
        "parameters: {attempts: 3}\nsteps:\n"
        "  - {name: a, action: count, with: {times: often, names: [x]}}\n"
        "  - {name: b, action: count, with: {times: 1, names: flights}}\n"
        "  - {name: c, probe: cluster_unreachable, with: {cluster: c, attempts: 0}}\n"
        '  - {name: d, probe: cluster_unreachable, with: {cluster: c, attempts: "${attempts}"}}\n',
        attempts="many",
    )
    assert [line for line, _ in found] == [5, 6, 7, 8]
    for (_, message), words in zip(
        found, ("a whole number", "a list", "at least 1", "a whole number"), strict=True
    ):
        assert words in message


def test_clusters_and_links_that_are_not_there_are_told_before_anything_runs(tmp_path: Path) -> None:
    found = problems(
        tmp_path / "r.yaml",
        "steps:\n  - {name: a, probe: look, with: {cluster: e, links: [c->d, d->c]}}\n"
        "rollback:\n  - {name: b, probe: look, with: {cluster: cc, links: []}}\n",
    )
    assert [line for line, _ in found] == [4, 4, 6]
    assert "there is no cluster 'e'" in found[0][1]
    assert "there is no link 'd->c'" in found[1][1]
    assert "did you mean 'c'" in found[2][1]


def test_results_that_no_step_before_saves_are_told_before_anything_runs(tmp_path: Path) -> None:
    found = problems(
        tmp_path / "r.yaml",
        "steps:\n"
        '  - {name: a, action: remember, with: {value: "${save.late.value}"}}\n'
        "  - {name: b, action: remember, with: {value: 1}, save: late}\n"
        '  - {name: c, action: remember, with: {value: ["${save.late.value}", "x ${save.late}"]}}\n',
    )
    assert [line for line, _ in found] == [4, 6]
    assert "no step before it saves 'late'" in found[0][1]
    assert "${save.NAME.FIELD}" in found[1][1]


async def test_a_value_for_a_list_is_one_and_a_number_is_a_number(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(
        "version: 1\ntitle: t\nparameters: {times: 1, names: [a, b], note: x}\nsteps:\n"
        '  - {name: a, action: count, with: {times: "${times}", names: "${names}"}}\n'
        '  - {name: b, action: remember, with: {value: "${note}"}}\n'
    )
    given: dict[str, str | int | float | bool] = {"times": "7", "names": "flights", "note": "one, two"}
    loaded = load_runbook(file, given)
    assert loaded.steps[0].arguments == {"times": 7, "names": ["flights"]}
    assert loaded.steps[1].arguments == {"value": "one, two"}


async def test_a_time_out_of_its_own_is_not_the_end_of_the_steps_time(tmp_path: Path) -> None:
    outcome, _ = await run(tmp_path, "[{name: a, action: hang_up}]")
    assert outcome.steps[0].error == "TimeoutError: [Errno 110] Connection timed out"


async def test_an_interrupted_run_says_so_in_its_journal(tmp_path: Path) -> None:
    running = asyncio.ensure_future(
        run(tmp_path, "[{name: a, action: remember, with: {value: 1}}, {name: b, action: wait_for_ever}]")
    )
    async with asyncio.timeout(20):
        while "waiting" not in CALLS:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})
    events = read_journal(tmp_path / "journal.jsonl")
    assert [event["event"] for event in events[-2:]] == ["step-started", "run-interrupted"]
    assert events[-1]["steps"] == 1


async def test_the_journal_tells_steps_from_rolling_back(tmp_path: Path) -> None:
    _, events = await run(
        tmp_path, "[{name: a, action: refuse}]", "[{name: a, action: remember, with: {value: undone}}]"
    )
    assert [event["part"] for event in events if "part" in event] == [
        "steps",
        "steps",
        "rollback",
        "rollback",
    ]


async def test_a_command_that_leaves_something_running_is_not_waited_for(tmp_path: Path) -> None:
    outcome, _ = await run(
        tmp_path,
        "[{name: a, action: run_command, timeout_seconds: 10,"
        " with: {command: [sh, -c, 'sleep 20 & echo started']}}]",
    )
    assert outcome.steps[0].result == {"exit_code": 0, "output": "started"}


async def test_a_command_may_end_as_the_step_says(tmp_path: Path) -> None:
    outcome, _ = await run(
        tmp_path,
        "[{name: a, action: run_command, with: {command: [sh, -c, 'exit 3'], exit_codes: [0, 3]}},"
        " {name: b, action: run_command, with: {command: [sh, -c, 'echo lost; exit 3']}}]",
    )
    assert outcome.steps[0].result["exit_code"] == 3
    assert outcome.steps[1].error == "sh -c echo lost; exit 3 ended with 3: lost"


async def test_a_command_that_is_too_slow_is_killed_with_what_it_started(tmp_path: Path) -> None:
    noted = tmp_path / "child"
    outcome, _ = await run(
        tmp_path,
        "[{name: a, action: run_command, timeout_seconds: 2,"
        f" with: {{command: [sh, -c, 'sleep 60 & echo $! > {noted}; wait']}}}}]",
    )
    assert "not within 2 s" in (outcome.steps[0].error or "")
    async with asyncio.timeout(20):
        while _lives(int(noted.read_text())):
            await asyncio.sleep(0.05)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False
