"""A token endpoint for the tests of a module, which answers as usual at the start of each."""

import pytest

from tests.support.token_server import TokenServer


@pytest.fixture(scope="module")
def running_server():
    with TokenServer() as running:
        yield running


@pytest.fixture
def server(running_server):
    running_server.answer = None
    running_server.asked.clear()
    return running_server
