"""What the Kafka commands share: where the cluster is, an admin client, one way to wait for answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from isthmus.output import FAILED, USAGE, fail
from isthmus.topologies import access_of, named_outage

if TYPE_CHECKING:
    from protocol.client.access import Access

T = TypeVar("T")
TIMEOUT_S = 30.0
_NOT_THERE = ("UNKNOWN_TOPIC_OR_PART", "GROUP_ID_NOT_FOUND")
"""A name that the cluster does not have, as one that a file does not have, is wrong usage."""

Cluster = Annotated[
    str, typer.Option("--cluster", "-c", help="host:port,… or a cluster's alias in the topology")
]
TopologyFile = Annotated[
    Path | None, typer.Option("--topology", "-f", help="topology YAML that the alias stands in")
]
Json = Annotated[bool, typer.Option("--json", help="for machines")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do it without asking")]


def client_settings(cluster: str, file: Path | None) -> dict[str, Any]:
    return {
        **access_of(cluster, file).librdkafka(),
        "client.id": "isthmus-cli",
        "socket.connection.setup.timeout.ms": 5000,
        "log_level": 0,
    }


def admin_client(cluster: str, file: Path | None) -> AdminClient:
    """An admin client whose cluster answers, or the end of the command saying that it does not."""
    settings = client_settings(cluster, file)
    # librdkafka waits ten seconds for a token and does not say why there is none.
    if "oauth_cb" in settings and (why := asyncio.run(_not_let_in(access_of(cluster, file)))):
        fail(why)
    try:
        client = AdminClient(settings)  # waits for a token, where the cluster wants one
        _beside(lambda: client.list_topics(timeout=10))
    except KafkaException as error:
        silent = named_outage(cluster, file) or asyncio.run(_not_let_in(access_of(cluster, file)))
        fail(silent or f"no broker answers at {settings['bootstrap.servers']}: {error.args[0].str()}")
    return client


def _beside(work: Callable[[], T]) -> T:
    """Its result, from a thread: librdkafka's calls hold up Ctrl-C until they are done."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return future.result()


async def _not_let_in(access: Access) -> str:
    """Why our own client cannot get in, which says more than librdkafka's; empty where it can."""
    from protocol.client import NO_RETRIES
    from protocol.errors import ProtocolError

    try:
        async with access.client("isthmus-cli", connect_timeout_s=5, retry=NO_RETRIES):
            return ""
    except (ProtocolError, ValueError) as error:
        return str(error)


def answer(future: Future[T], what: str) -> T:
    """The future's result, or the end of the command with the broker's own reason."""
    try:
        return future.result(TIMEOUT_S)
    except KafkaException as error:
        name = error.args[0].name()
        fail(f"{what}: {error.args[0].str()} ({name})", USAGE if name in _NOT_THERE else FAILED)
    except TimeoutError:
        fail(f"{what}: no answer within {TIMEOUT_S:g} s")


def answers(futures: Mapping[str, Future[Any]], what: str) -> dict[str, str | None]:
    """For each name None or the reason why not; never stops at the first bad one."""
    outcome: dict[str, str | None] = {}
    for name, future in futures.items():
        try:
            future.result(TIMEOUT_S)
            outcome[name] = None
        except KafkaException as error:
            outcome[name] = f"{what} {name}: {error.args[0].str()} ({error.args[0].name()})"
        except TimeoutError:
            outcome[name] = f"{what} {name}: no answer within {TIMEOUT_S:g} s"
    return outcome


def end_with(outcome: Mapping[str, str | None], *, told: bool = False) -> None:
    """Exit 1 with every reason when any name failed; `told` as for `fail`."""
    reasons = [reason for reason in outcome.values() if reason is not None]
    if reasons:
        fail("\nisthmus: ".join(reasons), told=told)
