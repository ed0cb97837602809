"""The command line: names, help and exit codes. Parse, call, show; the work is in the other packages.

Exit codes (all commands): 0 done and verified, 1 failed, 2 usage, 3 finished but found differences or gaps,
130 and 143 interrupted by Ctrl-C and SIGTERM (`interrupts`).
Command modules are imported when their command is used, so that a broker does not pay for Spark.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from isthmus.interrupts import Interrupted, interrupt_from_now, leave
from isthmus.lifetime import follow_parent
from isthmus.output import Failed, print_error

COMMANDS = {
    "up": "start a whole topology on this machine",
    "down": "stop a running topology",
    "status": "what runs where",
    "start": "start processes, clusters, links or datacenters of a running topology",
    "stop": "stop some of them cleanly",
    "kill": "kill some of them, as a power cut would",
    "demo": "lose a datacenter, fail over, audit, back up, restore",
    "net": "simulated links between sites: show, set, cut, heal",
    "broker": "run one broker",
    "zookeeper": "run one ZooKeeper server (embedded, for local use)",
    "object-store": "run a local S3 API (for trying things out)",
    "replicate": "run links",
    "copy": "copy topics from one cluster to another, once or for ever",
    "links": "links: check, status, pause, resume, set, drift, translate and more",
    "mirrors": "mirrors with identical offsets: status, promote, failover, reverse and more",
    "topology": "topology files: validate, show, plan, apply",
    "topics": "topics: list, describe, create, grow, delete",
    "replicas": "whether the replicas of partitions hold the same bytes",
    "elect": "partitions without a leader: what could be lost, and electing one",
    "groups": "consumer groups: list, describe, reset, delete",
    "configs": "settings of topics: describe, set, min-isr",
    "produce": "write records from standard input",
    "consume": "read records",
    "log": "look into a broker's log directory",
    "backup": "backups: create, list, describe, validate",
    "restore": "restore a backup into a cluster",
    "audit": "prove that two copies hold the same records",
    "drill": "runbooks: run, check, verbs",
    "monitor": "lag of consumer groups as Prometheus metrics",
    "probe": "watch every broker end to end: write to it and read back",
}
"""Name to one-line help; module `isthmus.commands.<name>` has `app` (a Typer) or a function of that name."""


class LazyCommands(TyperGroup):
    """Finds commands in `isthmus.commands` without importing the ones that are not used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in sys.argv[1:2]:  # help lists all commands; only the called one is loaded
            listed = typer.Typer()
            listed.command(name=cmd_name, help=COMMANDS[cmd_name])(_not_loaded)
            return get_command(listed)
        command = self._load(cmd_name)
        interrupt_from_now()
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None
        except (Failed, TyperException) as error:
            if "--json" in sys.argv and not (isinstance(error, Failed) and error.told):
                print_error(error)
            raise

    @staticmethod
    def _load(cmd_name: str) -> Any:
        module_name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"isthmus.commands.{module_name}")
        application = getattr(module, "app", None)
        if application is None:
            application = typer.Typer(add_completion=False)
            application.command(name=cmd_name)(getattr(module, module_name))
        command = get_command(application)
        command.name = cmd_name
        return command


def _not_loaded() -> None:
    raise AssertionError("only listed, never run")


app = typer.Typer(
    cls=LazyCommands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Kafka data that survives the loss of a datacenter. Start with: [bold]isthmus demo[/bold]",
)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"isthmus {metadata.version('isthmus')}")
        raise typer.Exit


@app.callback()
def isthmus(
    version: Annotated[
        bool,
        typer.Option("--version", help="show the version and exit", callback=_say_version, is_eager=True),
    ] = False,
) -> None:
    """Kafka data that survives the loss of a datacenter. Start with: [bold]isthmus demo[/bold]"""


def main() -> None:
    follow_parent()
    try:
        app()
    except Interrupted:
        leave()
    except BrokenPipeError:
        # The reader of our output went away (`isthmus topics list | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is not written yet
        where = error.filename or "standard output (or a file that it writes)"
        sys.exit(f"isthmus: {where}: {os.strerror(error.errno)}: not all of it is written; make room there")
