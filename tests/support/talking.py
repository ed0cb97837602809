"""A client and a `FakeBroker` that talk in names: ListGroups asks for one, the answer has some."""

import contextlib
from collections.abc import AsyncIterator

from protocol.client import Connection
from protocol.messages.list_groups_request import ListGroupsRequest
from protocol.messages.list_groups_response import ListedGroup, ListGroupsResponse
from tests.support.fake_broker import FakeBroker, Peer, Received, Script


def groups(*names: str) -> ListGroupsResponse:
    return ListGroupsResponse(groups=[ListedGroup(group_id=name, protocol_type="") for name in names])


def asked(received: Received) -> str:
    return received.body.states_filter[0]


def question(name: str) -> ListGroupsRequest:
    return ListGroupsRequest(states_filter=[name])


@contextlib.asynccontextmanager
async def talking(script: Script, **options) -> AsyncIterator[tuple[FakeBroker, Connection]]:
    async with FakeBroker(script) as broker:
        connection = await Connection.open("127.0.0.1", broker.port, client_id="tests", **options)
        try:
            yield broker, connection
        finally:
            await connection.close()


async def echo(peer: Peer) -> None:
    while True:
        received = await peer.request()
        await peer.answer(received, groups(asked(received)))


def names(answer: ListGroupsResponse) -> list[str]:
    return [group.group_id for group in answer.groups]
