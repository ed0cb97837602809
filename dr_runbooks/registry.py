"""The verbs that a runbook can use: actions and probes, found by name, with checked arguments.

An action returns what it did (a JSON-able mapping). A probe returns what it saw, or raises `NotYet` with the
reason; the engine asks again until the step's time is over. Verbs register themselves when their module is
imported by `verbs()`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_type_hints

from pydantic import TypeAdapter, ValidationError

from replicator.wrong_values import in_words
from topology.problems import suggestion

Result = dict[str, Any]
Function = Callable[..., Awaitable[Result]]
Kind = Literal["action", "probe"]

_MODULES = ("dr_runbooks.actions", "dr_runbooks.probes", "dr_runbooks.link_probes")


class NotYet(Exception):
    """A probe does not hold at the moment; the message says what was seen."""


class StepFailed(Exception):
    """An action could not be done; the message says what to do about it."""


@dataclass(frozen=True)
class Verb:
    name: str
    kind: Kind
    function: Function
    moves_something: bool
    """Destroys, kills or moves leadership or clients: shown in the plan and asked about."""

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.function) or "").split("\n")[0]

    def argument_problems(self, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """(argument, message) for each argument that is unknown, missing or of another type."""
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        names = {parameter.name for parameter in parameters}
        types = get_type_hints(self.function, include_extras=True)
        for name, value in arguments.items():
            if name not in names:
                yield name, f"{self.kind} '{self.name}' has no argument '{name}'{suggestion(name, names)}"
            elif "${save." not in str(value):  # those are known when their step has run
                try:
                    TypeAdapter(types[name]).validate_python(value, strict=True)
                except ValidationError as error:
                    yield name, in_words(error.errors())
        for parameter in parameters:
            if parameter.default is parameter.empty and parameter.name not in arguments:
                yield "", f"{self.kind} '{self.name}' needs the argument '{parameter.name}'"


_REGISTERED: dict[tuple[Kind, str], Verb] = {}


def action(*, moves_something: bool = False) -> Callable[[Function], Function]:
    return lambda function: _register("action", function, moves_something)


def probe(function: Function) -> Function:
    return _register("probe", function, moves_something=False)


def verbs() -> Mapping[tuple[Kind, str], Verb]:
    for module in _MODULES:
        importlib.import_module(module)
    return _REGISTERED


def _register(kind: Kind, function: Function, moves_something: bool) -> Function:
    name = function.__name__
    _REGISTERED[kind, name] = Verb(name, kind, function, moves_something)
    return function
