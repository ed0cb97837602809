"""Read a runbook: YAML with line marks, parameters filled in, verbs and arguments checked, all at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dr_runbooks.models import Runbook, Scalar, Step
from dr_runbooks.registry import Kind, verbs
from protocol.yaml_text import line_of, plain
from topology.load import read_yaml, shape_problems
from topology.models import Topology
from topology.problems import Problem, TopologyError, dotted, suggestion

PLACEHOLDER = re.compile(r"\$\{(?P<name>[A-Za-z0-9_.-]+)\}")
SAVED = re.compile(r"\$\{save\.(?P<name>[A-Za-z0-9_-]+)\.(?P<field>[A-Za-z0-9_-]+)\}")
"""What an earlier step saved; it is put in when the step begins."""
At = tuple[str | int, ...]


def load_runbook(
    path: Path, parameters: Mapping[str, Scalar] | None = None, topology: Topology | None = None
) -> Runbook:
    """The runbook with `${parameter}` replaced by the given values over the file's defaults. Text that is
    given for a list is split at commas. With `topology` the clusters and links that it names have to exist.

    Raises TopologyError (the one exception for files a person wrote) with every problem and its line.
    """
    document = read_yaml(path)
    content = plain(document)
    found: list[tuple[At, str]] = []
    known = _section(content, "parameters")
    values = known | {name: _like(known.get(name), value) for name, value in (parameters or {}).items()}
    found += [
        (("parameters",), f"there is no parameter '{name}'{suggestion(name, known)}")
        for name in parameters or {}
        if name not in known
    ]
    for part in ("steps", "rollback", "way_back"):
        if part in content:
            content[part] = _fill(content[part], values, found, (part,))
    if isinstance(content.get("parameters", {}), dict):  # else the model says what it has to be
        content["parameters"] = values
    problems = [Problem(line_of(document, at), dotted(at), message) for at, message in found]
    runbook: Runbook | None = None
    try:
        runbook = Runbook.model_validate(content)
    except ValidationError as error:
        problems.extend(shape_problems(document, error, Runbook))
    else:
        problems.extend(
            Problem(line_of(document, at), dotted(at), message)
            for check in (_verb_problems(runbook), _reference_problems(runbook, topology), unsaved(runbook))
            for at, message in check
        )
    if problems or runbook is None:
        raise TopologyError(str(path), problems)
    return runbook


def _section(content: Any, name: str) -> dict[str, Any]:
    section = content.get(name) if isinstance(content, dict) else None
    return section if isinstance(section, dict) else {}


def _like(default: Any, value: Any) -> Any:
    """A value from the command line as the file's own is; text stays where it cannot be one."""
    if not isinstance(value, str):
        return value
    if isinstance(default, list):
        return [part.strip() for part in value.split(",")]
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(value.lower(), value)
    if isinstance(default, int | float):
        try:
            return type(default)(value)
        except ValueError:
            return value
    return value


def _fill(node: Any, values: Mapping[str, Any], found: list[tuple[At, str]], at: At) -> Any:
    """Replace placeholders; one that is the whole text keeps its type. `save.…` is for the engine."""
    if isinstance(node, dict):
        return {key: _fill(value, values, found, (*at, key)) for key, value in node.items()}
    if isinstance(node, list):
        return [_fill(value, values, found, (*at, index)) for index, value in enumerate(node)]
    if not isinstance(node, str):
        return node
    whole = PLACEHOLDER.fullmatch(node)
    if whole is not None and whole["name"] in values:
        return values[whole["name"]]

    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        if name.startswith("save."):
            return match[0]
        if name not in values:
            found.append((at, f"there is no parameter '{name}'{suggestion(name, values)}"))
            return match[0]
        return str(values[name])

    return PLACEHOLDER.sub(replace, node)


def _verb_problems(runbook: Runbook) -> Iterator[tuple[At, str]]:
    known = verbs()
    for at, step in _steps(runbook):
        kind: Kind = "action" if step.action is not None else "probe"
        verb = known.get((kind, step.verb))
        if verb is None:
            names = [name for of_kind, name in known if of_kind == kind]
            yield (*at, kind), f"there is no {kind} '{step.verb}'{suggestion(step.verb, names)}"
            continue
        for argument, message in verb.argument_problems(step.arguments):
            yield (*at, "with", argument) if argument else at, message


def _reference_problems(runbook: Runbook, topology: Topology | None) -> Iterator[tuple[At, str]]:
    """By the names of arguments: `cluster`, `link` and `links` are what a topology has."""
    if topology is None:
        return
    declared: dict[str, Collection[str]] = {"cluster": topology.clusters, "link": topology.links}
    for at, step in _steps(runbook):
        for argument, value in step.arguments.items():
            kind = argument.removesuffix("s")
            known = declared.get(kind)
            for name in value if isinstance(value, list) else [value]:
                if known is not None and name not in known and "${" not in str(name):
                    message = f"there is no {kind} '{name}'{suggestion(str(name), known)}"
                    yield (*at, "with", argument), message


def unsaved(runbook: Runbook) -> Iterator[tuple[At, str]]:
    """Uses of results that no earlier step saves."""
    saved: set[str] = set()
    for at, step in _steps(runbook):
        for argument, value in step.arguments.items():
            for text in re.findall(r"\$\{save\.[^}]*\}", str(value)):
                match = SAVED.fullmatch(text)
                if match is None:
                    yield (*at, "with", argument), f"{text} has to be ${{save.NAME.FIELD}}"
                elif match["name"] not in saved:
                    yield (*at, "with", argument), f"{text}: no step before it saves '{match['name']}'"
        if step.save is not None:
            saved.add(step.save)


def _steps(runbook: Runbook) -> Iterator[tuple[At, Step]]:
    for part in ("steps", "rollback"):
        for index, step in enumerate(getattr(runbook, part)):
            yield (part, index), step
