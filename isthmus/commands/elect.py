"""`isthmus elect`: partitions without a leader, what an election would cost, and the word that holds it.

Also gives leaderships back to preferred leaders. Works on any Kafka cluster; the ends of single replicas are
told by brokers that answer ListOffsets for replica -2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata

from isthmus.election_risk import Risk, look
from isthmus.kafka_admin import TIMEOUT_S, Cluster, Json, TopologyFile, Yes, admin_client
from isthmus.output import DIFFERENCES, USAGE, confirm, fail, note, print_json, print_table, say

_NOT_NEEDED = "ELECTION_NOT_NEEDED"


def elect(
    cluster: Cluster,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="topic or topic:partition, repeatable")
    ] = None,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="elect a leader where there is none; may lose records")
    ] = False,
    preferred: Annotated[bool, typer.Option("--preferred", help="give leadership to first replicas")] = False,
    file: TopologyFile = None,
    as_json: Json = False,
    yes: Yes = False,
) -> None:
    """Show partitions without a leader and what electing one could lose; --unclean elects.

    The last replica in sync, if its broker was killed or lost its machine, is not elected by itself: it may
    lack records that were acknowledged. This shows how far each replica's log reaches. Ends with 3 while
    partitions have no leader, with 2 if a --topic is not there.

    Examples:

      isthmus elect --cluster east

      isthmus elect --cluster east --topic orders --topic flights:3 --unclean

      isthmus elect --cluster east --preferred
    """
    if unclean and preferred:
        fail("--unclean and --preferred are two elections: choose one", USAGE)
    only = _chosen(topic)
    client = admin_client(cluster, file)
    metadata = client.list_topics(timeout=10)
    _known(metadata, only or {})
    if preferred:
        _hold(client, ElectionType.PREFERRED, _all_of(metadata, only), as_json=as_json)
        return
    risks = look(metadata, only)
    if not unclean or not risks:
        _show(risks, as_json=as_json)
        if risks:
            raise typer.Exit(DIFFERENCES)
        return
    confirm("\n".join(f"{risk.partition}: {risk.words}" for risk in risks), yes=yes)
    wanted = [TopicPartition(*risk.partition) for risk in risks]
    _hold(client, ElectionType.UNCLEAN, wanted, as_json=as_json)


def _chosen(topics: list[str] | None) -> dict[str, set[int]] | None:
    if not topics:
        return None
    only: dict[str, set[int]] = {}
    for text in topics:
        name, colon, number = text.partition(":")
        if colon and not number.isdigit():
            fail(f"--topic {text}: the partition is not a number", USAGE)
        only.setdefault(name, set()).update({int(number)} if colon else ())
    return only


def _known(metadata: ClusterMetadata, only: Mapping[str, set[int]]) -> None:
    """Ends the command for a name that is not there: in an outage a slip must not read as all clear."""
    wrong = []
    for name, numbers in sorted(only.items()):
        topic = metadata.topics.get(name)
        if topic is None or (topic.error is not None and not topic.partitions):
            wrong.append(f"there is no topic '{name}'; isthmus topics list shows what there is")
            continue
        count = len(topic.partitions)
        wrong.extend(
            f"there is no partition {number} in topic '{name}': it has 0…{count - 1}"
            for number in sorted(numbers - set(topic.partitions))
        )
    if wrong:
        fail("\nisthmus: ".join(wrong), USAGE)


def _all_of(metadata: ClusterMetadata, only: Mapping[str, set[int]] | None) -> list[TopicPartition]:
    return [
        TopicPartition(name, index)
        for name, found in sorted(metadata.topics.items())
        for index in sorted(found.partitions)
        if only is None or (name in only and (not only[name] or index in only[name]))
    ]


def _show(risks: list[Risk], *, as_json: bool) -> None:
    if as_json:
        print_json([risk.as_json() for risk in risks])
        return
    if not risks:
        say("every partition has a leader")
        return
    rows = [
        [
            str(risk.partition),
            ",".join(map(str, risk.isr)),
            "  ".join(f"{each}: {_end(risk, each)}" for each in risk.replicas),
            risk.words,
        ]
        for risk in risks
    ]
    print_table(("partition", "isr", "log ends", "an election"), rows)
    silent = sorted({each for risk in risks for each in risk.silent})
    better = f"; better is to bring back broker {', '.join(map(str, silent))}, which does not answer"
    note(f"isthmus elect --unclean elects them{better if silent else ''}")


def _end(risk: Risk, broker: int) -> str:
    end = risk.ends.get(broker)
    return "no answer" if end is None else f"{end.offset} (epoch {end.epoch})"


def _hold(client: AdminClient, kind: ElectionType, wanted: list[TopicPartition], *, as_json: bool) -> None:
    """Ask the controller, and say what came of each; ends with 1 where one was refused."""
    try:
        results = client.elect_leaders(kind, wanted).result(TIMEOUT_S)
    except KafkaException as error:
        fail(f"elections: {error.args[0].str()} ({error.args[0].name()})")
    except TimeoutError:
        fail(f"elections: no answer within {TIMEOUT_S:g} s")
    refused = {
        f"{partition.topic}-{partition.partition}": f"{error.str()} ({error.name()})"
        for partition, error in results.items()
        if error is not None and error.name() not in (_NOT_NEEDED, "_NO_ERROR", "NO_ERROR")
    }
    held = sorted(
        f"{partition.topic}-{partition.partition}"
        for partition, error in results.items()
        if error is None or error.name() in ("_NO_ERROR", "NO_ERROR")
    )
    if as_json:
        print_json({"elected": held, "refused": refused})
    else:
        say(f"elected: {', '.join(held)}" if held else "no election was needed")
    if refused:
        fail("\nisthmus: ".join(f"{name}: {why}" for name, why in sorted(refused.items())), told=True)
