"""Probes: what goes wrong while they ask is never what they wait for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dr_runbooks import probes
from dr_runbooks.engine import Context
from dr_runbooks.registry import NotYet, StepFailed
from protocol.client import LATEST, Committed, ListedOffset
from protocol.client.errors import (
    AuthenticationError,
    ConnectError,
    NotSupportedError,
    RequestTimeoutError,
    TurnedAwayError,
    WrongClusterError,
)
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import TopicPartition
from topology.load import parse_topology
from topology.runtime import Runtime


@pytest.fixture
def context(tmp_path: Path) -> Context:
    topology = parse_topology(
        "{version: 1, name: t, data_directory: d, datacenters: {a: {}}, "
        "clusters: {c: {datacenter: a, bootstrap_servers: 'x:1'}}}"
    )
    return Context(topology, Runtime(tmp_path), tmp_path)


def opens(monkeypatch: pytest.MonkeyPatch, client: Any) -> None:
    """Probes get this client, or the error that opening one ends with."""

    @asynccontextmanager
    async def opened(context: Context, cluster: str) -> AsyncIterator[Any]:
        if isinstance(client, Exception):
            raise client
        yield client

    monkeypatch.setattr(probes, "probe_client", opened)


@pytest.mark.parametrize("error", [ConnectError("refused"), RequestTimeoutError("silent")])
async def test_a_cluster_without_an_answer_is_out_of_reach(
    context: Context, monkeypatch: pytest.MonkeyPatch, error: ProtocolError
) -> None:
    opens(monkeypatch, error)
    found = await probes.cluster_unreachable(context, "c", attempts=2, pause_seconds=0)
    assert found == {"cluster": "c", "attempts": 2}


@pytest.mark.parametrize(
    "error",
    [
        AuthenticationError("SaslAuthenticate: the password is wrong"),
        WrongClusterError("x:1 was cluster a and now is b"),
        NotSupportedError("Metadata"),
        KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no"),
    ],
)
async def test_a_cluster_that_refuses_this_client_is_not_gone(
    context: Context, monkeypatch: pytest.MonkeyPatch, error: ProtocolError
) -> None:
    opens(monkeypatch, error)
    with pytest.raises(StepFailed, match="c is there, but does not let this client in"):
        await probes.cluster_unreachable(context, "c", pause_seconds=0)


async def test_somebody_who_ends_the_connection_is_somebody(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens(monkeypatch, TurnedAwayError("the certificate has expired"))
    with pytest.raises(NotYet, match="somebody answers at c: the certificate has expired"):
        await probes.cluster_unreachable(context, "c", pause_seconds=0)


class Log:
    """A cluster with `ends` of partitions, and what a group has committed."""

    def __init__(self, ends: dict[TopicPartition, int], committed: dict[TopicPartition, int]) -> None:
        self._ends = ends
        self._committed = committed

    async def metadata(self, topics: list[str]) -> Any:
        named: dict[str, Any] = {}
        for name in topics:
            partitions = {tp.partition: None for tp in self._ends if tp.topic == name}
            error = 0 if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            named[name] = SimpleNamespace(name=name, partitions=partitions, error=error)
        return SimpleNamespace(topics=named)

    async def committed(self, group: str, spots: list[TopicPartition]) -> dict[TopicPartition, Committed]:
        return {tp: Committed(offset) for tp, offset in self._committed.items() if tp in spots}

    async def list_offsets(self, spots: dict[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        at_end = set(spots.values()) == {LATEST}
        return {tp: ListedOffset(self._ends[tp] if at_end else 0, -1, -1) for tp in spots}


T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


async def test_a_group_may_be_without_an_offset_where_nothing_is(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens(monkeypatch, Log({T0: 10, T1: 0}, {T0: 7}))
    found = await probes.group_offsets_valid(context, "c", "g", ["t"])
    assert found == {"partitions": 1, "of": 2, "records_to_read": 3}


@pytest.mark.parametrize(
    ("ends", "committed", "words"),
    [
        ({T0: 10, T1: 5, U0: 5}, {T0: 7, U0: 0}, "no committed offset in c for t-1"),
        ({T0: 10, U0: 5}, {T0: 7}, "no committed offset in c for u-0"),
        ({T0: 10}, {T0: 7}, "c has no topic u"),
        ({T0: 10, U0: 5}, {T0: 7, U0: 6}, "u-0: 6 not in 0…5"),
        ({T0: 0, U0: 0}, {}, "no committed offset in c for t, u"),
    ],
)
async def test_a_group_needs_an_offset_wherever_there_are_records(
    context: Context,
    monkeypatch: pytest.MonkeyPatch,
    ends: dict[TopicPartition, int],
    committed: dict[TopicPartition, int],
    words: str,
) -> None:
    opens(monkeypatch, Log(ends, committed))
    with pytest.raises(NotYet, match=words):
        await probes.group_offsets_valid(context, "c", "g", ["t", "u"])
