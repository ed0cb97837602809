"""What REST says and takes, as its OpenAPI page shows it. Units are in the descriptions."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Standing(BaseModel):
    """What a link, or one of its processes, does at the moment; and why, if it does not copy."""

    model_config = ConfigDict(extra="ignore")

    state: str = Field(
        default="running",
        description="connecting, starting, running or stopping; of a link also paused, or not running (no"
        " process says that it runs it)",
    )
    waits_for: str = Field(default="", description="before it copies; empty: for nothing")
    since_ms: int | None = Field(default=None, description="since when it stands so; null: not known")
    reason: str = Field(default="", description="why that takes longer, or why it does not run")
    to_do: str = Field(default="", description="what to do about it")


class Worker(BaseModel):
    """A process that runs the link, as it last said."""

    model_config = ConfigDict(extra="ignore")

    worker: str = Field(description="host:process")
    host: str
    pid: int
    rest: str = Field(description="where its REST answers; empty: nowhere")
    leads: bool = Field(description="does what is done once for the link: topics, settings, ACLs, groups")
    epoch: int = Field(description="of the plan by which it has its partitions")
    began_ms: int
    at_ms: int = Field(description="when it said so")
    silent: bool = Field(description="nothing has come of it while it was listened for")
    partitions: int
    rate: int = Field(description="bytes per second")
    problems: dict[str, str]
    problems_since: dict[str, int] = Field(description="when those began (ms) of which that is known")
    standing: Standing


class Latency(BaseModel):
    """From a record's own timestamp to its acknowledgement at the target, of the last one to two minutes; at
    most 6 % too high. Records older than an hour do not count."""

    p50: float = Field(description="seconds: half of the records were not later")
    p99: float = Field(description="seconds: 99 % were not later")
    max: float = Field(description="seconds: none was later")


class TopicLatency(Latency):
    """Of all records of a topic, whichever worker copied them."""

    records: int


class Partition(BaseModel):
    """A source partition."""

    model_config = ConfigDict(extra="ignore")

    topic: str
    partition: int
    at_target: str = Field(description="the topic at the target")
    worker: str | None = Field(description="who copies it; null: nobody says so")
    at_worker: str | None = Field(
        description="running, opening, waiting, refused, held, paused or gone; of a mirror also stopped (it"
        " needs a person)"
    )
    reason: str | None
    paused: str = Field(description="who paused it, and why; empty: it is not paused")
    lane: str | None = Field(
        description="raw: batches as they are; merge: small ones become one; records: each is built anew"
    )
    lane_reason: str | None = Field(description="why it is not raw")
    rate: int | None = Field(description="bytes per second")
    starts: int | None = Field(description="how often its worker has begun it")
    latency: Latency | None = Field(description="null: no record in the last minutes")
    copied: int = Field(description="records")
    next_source_offset: int | None = Field(description="null: it has not begun")
    lag: int | None = Field(description="source offsets not copied yet; null: not known")
    lag_at_worker: int | None = Field(description="the same, as its worker last said")
    lag_bytes: int | None = Field(description="the same in bytes, as its worker estimated it last")
    lag_seconds: float | None = Field(
        description="how long the first record that is not copied was there when its worker last said so"
    )
    state: str = Field(
        description="copied, behind, not begun, deleted at the source, or why the lag is not known"
    )
    lost: tuple[int, int] | None = Field(
        description="source offsets from, to (excluded) that are gone there before this partition, which"
        " stands still, could copy them; they go on record as a gap when it goes on"
    )
    drops: int | None = Field(
        description="records that a mirror with identical offsets has before those that are lost: it lets go"
        " of them when it goes on"
    )
    gaps: list[tuple[int, int, str]] = Field(description="source offsets from, to (excluded), why")


class Groups(BaseModel):
    """How consumer groups stand at the target."""

    in_sync: int = Field(description="groups all of whose positions are there")
    not_in_sync: int
    reasons: dict[str, str] = Field(description="why not, by group, of the first hundred by name")


class Link(BaseModel):
    """One direction of copying."""

    link: str = Field(description="source->target")
    standing: Standing
    workers: list[Worker]
    partitions: list[Partition]
    differences: int = Field(description="gaps and superseded copies that nobody has acknowledged")
    source_problem: str = Field(
        description="why not all of the source's ends are known, within seconds; empty: they are"
    )
    groups: Groups | None = Field(description="null: no process syncs them")
    latencies: dict[str, TopicLatency] = Field(description="by source topic, where records came lately")
    settings_changed: dict[str, Any] = Field(description="by command or REST, before the link's file")


class LinkName(BaseModel):
    """A link of this process."""

    link: str
    state: str = Field(
        description="of this process: connecting, starting, running or stopping; not running: it has ended,"
        " others of this process go on"
    )
    waits_for: str = Field(default="", description="before it copies; empty: for nothing")
    since_ms: int | None = Field(default=None, description="since when it stands so")
    reason: str = Field(default="", description="why that takes longer")
    to_do: str = Field(default="", description="what to do about it")
    problems: dict[str, str]


class Topic(BaseModel):
    """All partitions of a source topic."""

    topic: str
    latency: TopicLatency | None = Field(description="null: no record in the last minutes")
    partitions: list[Partition]


class Why(BaseModel):
    """A reason, for the status."""

    model_config = ConfigDict(extra="forbid")

    why: str = ""


class Values(BaseModel):
    """Settings to change while the link runs."""

    model_config = ConfigDict(extra="forbid")

    values: dict[str, Any] = Field(default_factory=dict, examples=[{"rate_limit": 20000000}])
    unset: list[str] = Field(default_factory=list, description="as in the link's file again")


class Done(BaseModel):
    """What follows; within about two seconds at all workers."""

    done: bool = Field(description="false with dry_run")
    text: str
    partitions: list[str] = Field(description="those known that it is about")


class Problem(BaseModel):
    """Why not, and what to do."""

    detail: str
