"""The controller at 200 brokers and 200,000 partitions: what it plans when a whole site is lost.

    python -m bench.control_plane [--brokers 200] [--partitions 200000] [--json FILE]

In memory, without ZooKeeper and without sockets, with the controller's own code: three sites, three replicas
each in another one, everything in sync. Times (of the CPU, for shared machines) are of a new reign's start,
of one broker's death, and of the loss of a site: its decisions and, with what they wrote put back as stored,
its messages for all brokers left. `encode_s` is what encoding all of these costs, as they are sent; it is not
part of the plan. `peak_mb` is the process's largest resident size. Limits (issue 5): 5 s, 2 GiB.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from broker.config import Endpoint
from broker.control.controller_core import ControllerCore, StateWrite
from broker.control.nodes import PartitionState, TopicNode
from broker.control.orders import LiveBroker, Order, Sender, StoredState
from protocol.codec import dumps
from protocol.types import TopicPartition, new_topic_id

SITES = 3
PER_TOPIC = 100
LIMITS = {"site_loss_s": 5.0, "peak_mb": 2048.0}
_ROOT = Path(__file__).resolve().parents[1]


class Plan(NamedTuple):
    """What was decided, and the messages that say so."""

    writes: list[StateWrite]
    orders: list[Order]


def brokers(count: int) -> dict[int, LiveBroker]:
    """Broker n is at site n modulo 3."""
    return {
        number: LiveBroker(
            number,
            1000 + number,
            (Endpoint("PLAINTEXT", f"broker-{number}", 9092, "PLAINTEXT"),),
            f"site-{number % SITES}",
        )
        for number in range(count)
    }


def topics(partitions: int, count: int) -> dict[str, TopicNode]:
    """Replicas at all three sites, leaders in turn over all brokers."""
    return {
        f"topic-{first // PER_TOPIC}": TopicNode(
            new_topic_id(),
            {index: replicas(first + index, count) for index in range(min(PER_TOPIC, partitions - first))},
        )
        for first in range(0, partitions, PER_TOPIC)
    }


def replicas(number: int, count: int) -> tuple[int, ...]:
    """Three brokers, each of another site, which share their partitions with many others."""
    lead = number % count
    rows = count // SITES
    shift = 1 + number // count
    chosen = [lead]
    for site in range(1, SITES):
        row = (lead // SITES + shift * site) % rows
        chosen.append(row * SITES + (lead + site) % SITES)
    return tuple(chosen)


def stored(known: Mapping[str, TopicNode]) -> dict[TopicPartition, StoredState]:
    return {
        TopicPartition(name, index): StoredState(PartitionState(each[0], 5, each, 1), 9)
        for name, node in known.items()
        for index, each in node.assignment.items()
    }


def follow(core: ControllerCore, writes: Sequence[StateWrite]) -> Plan:
    """As if all of it had been written."""
    core.all_written(
        (partition, state, 0 if version is None else version + 1) for partition, state, version in writes
    )
    return Plan(list(writes), core.take_orders())


def reign(alive: Mapping[int, LiveBroker], known: Mapping[str, TopicNode]) -> tuple[ControllerCore, Plan]:
    core = ControllerCore(Sender(1, 2, "PLAINTEXT"))
    return core, follow(core, core.start(alive, known, stored(known)))


def lose(core: ControllerCore, gone: set[int]) -> Plan:
    left = {number: broker for number, broker in core.brokers.items() if number not in gone}
    return follow(core, core.brokers_are(left))


def encode(orders: Sequence[Order]) -> int:
    """Bytes of all messages, encoded as the controller's connections do it."""
    size = 0
    for order in orders:
        version = order.request.VALID_VERSIONS[1]
        shared = order.encoded(version)
        size += len(dumps(order.request, version)) if shared is None else sum(map(len, shared))
    return size


def measure(count: int, partitions: int) -> dict[str, Any]:
    alive, known = brokers(count), topics(partitions, count)
    began = time.process_time()
    core, plan = reign(alive, known)
    found: dict[str, Any] = {"start_s": time.process_time() - began}
    del plan
    began = time.process_time()
    plan = lose(core, {SITES})
    found |= {"one_broker_s": time.process_time() - began, "one_broker_writes": len(plan.writes)}
    began = time.process_time()
    plan = lose(core, {number for number in alive if number % SITES == 2})
    found |= {
        "site_loss_s": time.process_time() - began,
        "site_loss_writes": len(plan.writes),
        "site_loss_orders": len(plan.orders),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    began = time.process_time()
    found["encoded_mb"] = encode(plan.orders) / 1e6
    found["encode_s"] = time.process_time() - began
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--brokers", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=200_000)
    parser.add_argument("--json", type=Path, default=_ROOT / "build" / "bench" / "control_plane.json")
    options = parser.parse_args()
    if options.brokers < 2 * SITES:
        sys.exit(f"--brokers {options.brokers}: at least {2 * SITES}, so that three sites have two each")
    found = measure(options.brokers, options.partitions)
    print(f"{options.brokers} brokers, {options.partitions} partitions, {SITES} replicas, {SITES} sites")
    for name, value in found.items():
        most = LIMITS.get(name)
        mark = "" if most is None else f"  at most {most:g}{'' if value <= most else ' << missed'}"
        print(f"{name:18} {value:12.2f}{mark}" if isinstance(value, float) else f"{name:18} {value:12}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    report = {"brokers": options.brokers, "partitions": options.partitions, "limits": LIMITS, **found}
    options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
