"""Read a runbook: YAML with line marks, parameters filled in, verbs and arguments checked, all at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dr_runbooks.models import Runbook, Scalar
from dr_runbooks.registry import Kind, verbs
from topology.lines import line_of
from topology.load import plain, read_yaml, shape_problems
from topology.problems import Problem, TopologyError, dotted, suggestion

PLACEHOLDER = re.compile(r"\$\{(?P<name>[A-Za-z0-9_.-]+)\}")
At = tuple[str | int, ...]


def load_runbook(path: Path, parameters: Mapping[str, Scalar] | None = None) -> Runbook:
    """The runbook with `${parameter}` replaced by the given values over the file's defaults.

    Raises TopologyError (the one exception for files a person wrote) with every problem and its line.
    """
    document = read_yaml(path)
    content = plain(document)
    found: list[tuple[At, str]] = []
    values = {**_section(content, "parameters"), **(parameters or {})}
    for name in parameters or {}:
        if name not in _section(content, "parameters"):
            known = _section(content, "parameters")
            found.append((("parameters",), f"there is no parameter '{name}'{suggestion(name, known)}"))
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
            Problem(line_of(document, at), dotted(at), message) for at, message in _verb_problems(runbook)
        )
    if problems or runbook is None:
        raise TopologyError(str(path), problems)
    return runbook


def _section(content: Any, name: str) -> dict[str, Any]:
    section = content.get(name) if isinstance(content, dict) else None
    return section if isinstance(section, dict) else {}


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
    for part in ("steps", "rollback"):
        for index, step in enumerate(getattr(runbook, part)):
            kind: Kind = "action" if step.action is not None else "probe"
            verb = known.get((kind, step.verb))
            if verb is None:
                names = [name for of_kind, name in known if of_kind == kind]
                message = f"there is no {kind} '{step.verb}'{suggestion(step.verb, names)}"
                yield (part, index, kind), message
                continue
            for argument, message in verb.argument_problems(step.arguments):
                yield (part, index, "with", argument) if argument else (part, index), message
