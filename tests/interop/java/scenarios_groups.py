"""Scenarios: consumer groups under ConsumerGroupCommand, alive and dead."""

import time

from tests.interop.java.scenarios_records import numbers, produce
from tests.interop.java.shell import Shell

_GROUP = "ConsumerGroupCommand"


def group_states(shell: Shell) -> None:
    """A live member, then an empty group: list and describe in all their forms."""
    shell.run("TopicCommand", "--create", "--topic", "grouped", "--partitions", "2")
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    produce(shell, "grouped", numbers(0, 10), *keyed)
    member = ("--topic", "grouped", "--group", "alive", "--from-beginning", "--max-messages", "11")
    consumer = shell.begin("ConsoleConsumer", *member, "--command-property", "auto.commit.interval.ms=100")

    def all_committed() -> bool:
        said = shell.ask(_GROUP, "--describe", "--group", "alive", "--offsets").out
        rows = [line.split() for line in said.splitlines() if line.startswith("alive")]
        return len(rows) == 2 and sum(int(row[3]) for row in rows if row[3].isdigit()) == 10

    shell.until("the member has committed", all_committed)
    _describe(shell, "alive")
    shell.run(_GROUP, "--list", any_order=True)
    for state in ("Stable", "Empty", "Stable,Empty", "Dead", "NoSuchState"):
        shell.run(_GROUP, "--list", "--state", state, any_order=True)
    shell.run(_GROUP, "--list", "--state", any_order=True)
    for kind in ("classic", "consumer"):
        shell.run(_GROUP, "--list", "--type", kind, any_order=True)
    shell.run("GroupsCommand", "--list", any_order=True)
    shell.run(_GROUP, "--delete", "--group", "alive")
    shell.run(
        _GROUP, "--reset-offsets", "--group", "alive", "--topic", "grouped", "--to-earliest", "--execute"
    )
    shell.run(_GROUP, "--delete-offsets", "--group", "alive", "--topic", "grouped")
    produce(shell, "grouped", "k0:last\n", *keyed)
    shell.note(f"the member ended with {consumer.result(40).code}")
    shell.until(
        "empty", lambda: "Empty" in shell.ask(_GROUP, "--describe", "--group", "alive", "--state").out
    )
    _describe(shell, "alive")
    _describe(shell, "nobody")
    shell.run(_GROUP, "--describe", "--all-groups", any_order=True)
    shell.run(_GROUP, "--delete-offsets", "--group", "alive", "--topic", "grouped:0")
    shell.run(_GROUP, "--delete-offsets", "--group", "alive", "--topic", "absent")
    shell.run(_GROUP, "--describe", "--group", "alive", any_order=True)
    shell.run(_GROUP, "--delete", "--group", "alive", "--group", "nobody", any_order=True)
    shell.run(_GROUP, "--list", any_order=True)


def _describe(shell: Shell, group: str) -> None:
    shell.run(_GROUP, "--describe", "--group", group, any_order=True)
    for what in ("--members", "--offsets", "--state"):
        shell.run(_GROUP, "--describe", "--group", group, what, any_order=True)
        shell.run(_GROUP, "--describe", "--group", group, what, "--verbose", any_order=True)


def group_resets(shell: Shell) -> None:
    """Every way to reset offsets of a group, with and without doing it."""
    shell.run("TopicCommand", "--create", "--topic", "reset", "--partitions", "1")
    produce(shell, "reset", numbers(0, 20))
    at = ("--reset-offsets", "--group", "back", "--topic", "reset")
    hour_later = time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime(time.time() + 3600))
    for kind in (
        ("--to-latest",),
        ("--to-earliest",),
        ("--to-offset", "7"),
        ("--shift-by", "5"),
        ("--shift-by", "-100"),
        ("--shift-by", "100"),
        ("--to-offset", "99"),
        ("--to-current",),
        ("--by-duration", "PT1H"),
        ("--to-datetime", "2020-01-01T00:00:00.000"),
    ):
        shell.run(_GROUP, *at, *kind)
        shell.run(_GROUP, *at, *kind, "--execute")
    shell.record(["to a later date"], shell.ask(_GROUP, *at, "--to-datetime", hour_later, "--execute"))
    shell.run(_GROUP, *at, "--to-earliest", "--dry-run", "--export")
    file = shell.file("plan.csv", '"reset",0,4\n')
    shell.run(_GROUP, "--reset-offsets", "--group", "back", "--from-file", file, "--execute")
    shell.run(_GROUP, "--reset-offsets", "--group", "back", "--all-topics", "--to-earliest")
    shell.run(
        _GROUP, "--reset-offsets", "--group", "back", "--topic", "reset:0", "--to-offset", "3", "--execute"
    )
    shell.run(
        _GROUP, "--reset-offsets", "--group", "back", "--topic", "reset:7", "--to-earliest", "--execute"
    )
    shell.run(_GROUP, "--reset-offsets", "--group", "back", "--topic", "absent", "--to-earliest", "--execute")
    shell.run(_GROUP, "--reset-offsets", "--all-groups", "--topic", "reset", "--to-latest", any_order=True)
    shell.run(
        "ConsoleConsumer",
        "--topic",
        "reset",
        "--group",
        "back",
        "--max-messages",
        "2",
        "--timeout-ms",
        "15000",
    )
    shell.run(_GROUP, "--delete", "--group", "back")
