"""`isthmus probe`: write to every broker of a cluster and read back, for a while or as Prometheus metrics."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.kafka_admin import Cluster, Json, TopologyFile
from isthmus.output import DIFFERENCES, USAGE, fail, note, print_json, print_table
from isthmus.topologies import access_of, named_outage
from isthmus.watching import Port, serve

if TYPE_CHECKING:
    from monitor.probe import Probe


def probe(
    cluster: Cluster,
    port: Port = None,
    seconds: Annotated[float, typer.Option("--for", help="how long, without --port", min=1)] = 10.0,
    interval: Annotated[float, typer.Option(help="seconds between two messages to a broker", min=0.05)] = 1.0,
    deadline: Annotated[float, typer.Option(help="seconds after which a message is late", min=0.05)] = 2.0,
    give_up: Annotated[float, typer.Option(help="seconds after which it is lost", min=1)] = 60.0,
    topic: Annotated[str, typer.Option(help="topic of the probe; made if it is missing")] = "isthmus-probe",
    file: TopologyFile = None,
    as_json: Json = False,
) -> None:
    """Watch every broker of a cluster end to end: write a message to it, read it back, count what is late or
    lost.

    The topic has a partition with one replica on each broker, so that only a broker's own trouble counts
    against it. It grows with the cluster, and is left as it is while a broker is away. Ends with 3 if a
    broker failed or is not watched.

    Examples:

      isthmus probe --cluster east --for 30

      isthmus probe --cluster main@paris -f examples/stretched-three-sites.yaml --port 9309
    """
    from monitor.probe import Probe

    if give_up <= deadline:
        fail("--give-up must be longer than --deadline", USAGE)
    made = Probe(
        access_of(cluster, file), topic=topic, interval_s=interval, deadline_s=deadline, give_up_s=give_up
    )
    if port is not None:
        asyncio.run(_serve(made, cluster, port))
        return
    note(f"probing {cluster} for {seconds:g} s")
    asyncio.run(_for_a_while(made, seconds))
    if made.covered is None:
        fail(named_outage(cluster, file) or f"{cluster} did not answer in {seconds:g} s")
    rows = _rows(made)
    if as_json:
        print_json(rows)
    else:
        columns = ("broker", "state", "in_time", "late", "lost", "latency_ms", "reason")
        print_table(columns, [[row[column] for column in columns] for row in rows])
    if any(row["state"] != "ok" for row in rows):
        raise typer.Exit(DIFFERENCES)


async def _for_a_while(made: Probe, seconds: float) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, stop.set)
    await made.run(stop)


async def _serve(made: Probe, cluster: str, port: int) -> None:
    from prometheus_client import CollectorRegistry

    from monitor.probe_metrics import ProbeCollector

    registry = CollectorRegistry()
    ProbeCollector(cluster, made, registry)
    await serve(f"probe of {cluster}", registry, port, made.run)


def _rows(made: Probe) -> list[dict[str, Any]]:
    """A row for each broker that is watched, is away, or should be watched."""
    assert made.covered is not None
    rows = []
    now = time.monotonic()
    for broker, record in sorted(made.ledger.brokers.items()):
        away = broker in made.covered.away
        state = "away" if away else "fails" if made.ledger.fails(broker, now) else "ok"
        latency = None if record.latency_s is None else round(record.latency_s * 1000, 1)
        rows.append(
            {
                "broker": broker,
                "state": state,
                "in_time": record.in_time,
                "late": record.late,
                "lost": record.lost,
                "latency_ms": latency,
                "reason": "" if state == "ok" else record.reason,
            }
        )
    for broker in made.covered.uncovered:
        reason = "it gets a partition when the brokers that are away are back"
        empty = {"in_time": 0, "late": 0, "lost": 0, "latency_ms": None, "reason": reason}
        rows.append({"broker": broker, "state": "not watched", **empty})
    return rows
