"""What a runbook file says: parameters, steps, and the steps that put things back after a failure.

A step either does something (`action`) or asks something (`probe`, repeated until it holds or its time is
over). Names and arguments of both are checked against the registry before anything runs.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Scalar = str | int | float | bool


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Step(Model):
    name: str
    action: str | None = None
    probe: str | None = None
    arguments: Annotated[dict[str, Any], Field(alias="with")] = {}
    timeout_seconds: Annotated[float, Field(gt=0)] = 30.0
    on_failure: Literal["stop", "continue"] = "stop"
    save: str | None = None
    """Name under which the result is kept for the report and for later steps (`${save.NAME.field}`)."""
    owner: str | None = None
    """Who does this in the real case; printed in the report."""

    @model_validator(mode="after")
    def _one_kind(self) -> Step:
        if (self.action is None) == (self.probe is None):
            raise ValueError("needs either an action or a probe")
        return self

    @property
    def verb(self) -> str:
        return self.action or self.probe or ""


class Runbook(Model):
    version: Literal[1]
    title: str
    description: str = ""
    parameters: dict[str, Scalar | list[str]] = {}
    steps: Annotated[tuple[Step, ...], Field(min_length=1)]
    way_back: str = ""
    """What to do to come back, with the commands; shown with the plan and when the runbook has ended."""
    rollback: tuple[Step, ...] = ()
    """Run in order when a step fails with `on_failure: stop`."""
