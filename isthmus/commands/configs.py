"""`isthmus configs …`: settings of topics."""

from __future__ import annotations

from typing import Annotated

import typer
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from isthmus.commands import min_isr
from isthmus.commands.topics import pairs
from isthmus.kafka_admin import Cluster, Json, TopologyFile, admin_client, answer
from isthmus.output import USAGE, fail, print_json, print_table, say
from protocol.counted import counted

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Settings of topics.")
app.add_typer(min_isr.app, name="min-isr")
Topic = Annotated[str, typer.Argument(help="topic", show_default=False)]


@app.command()
def describe(
    topic: Topic,
    cluster: Cluster,
    everything: Annotated[bool, typer.Option("--all", help="also defaults")] = False,
    file: TopologyFile = None,
    as_json: Json = False,
) -> None:
    """Show what is set on a topic, and with --all what applies to it by default.

    Example: isthmus configs describe flights --cluster east
    """
    resource = ConfigResource(ResourceType.TOPIC, topic)
    client = admin_client(cluster, file)  # must outlive its answer
    entries = answer(client.describe_configs([resource])[resource], f"settings of {topic}")
    override = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    rows = [
        {"name": name, "value": entry.value, "source": ConfigSource(entry.source).name.lower()}
        for name, entry in sorted(entries.items())
        if everything or entry.source == override
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(("name", "value", "source"), [list(row.values()) for row in rows])
    else:
        say(f"{topic} has no settings of its own; --all shows the defaults that apply")


@app.command("set")
def set_configs(
    topic: Topic,
    settings: Annotated[list[str] | None, typer.Argument(help="name=value", show_default=False)] = None,
    cluster: Cluster = "",
    unset: Annotated[list[str] | None, typer.Option("--unset", help="back to the default")] = None,
    file: TopologyFile = None,
) -> None:
    """Set or unset settings of a topic; all others stay as they are.

    Example: isthmus configs set flights retention.ms=86400000 --unset max.message.bytes --cluster east
    """
    changes = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in pairs(settings or []).items()
    ]
    changes += [
        ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in unset or []
    ]
    if not changes or not cluster:
        fail("say --cluster and at least one name=value or --unset name", USAGE)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    client = admin_client(cluster, file)
    answer(client.incremental_alter_configs([resource])[resource], f"settings of {topic}")
    say(f"{topic}: {counted(len(changes), 'setting')} changed")
