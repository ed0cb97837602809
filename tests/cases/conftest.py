"""Fixtures of the cases: see `tests.support.sides`."""

from contextlib import AbstractContextManager
from functools import partial

import pytest

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from tests.support.sides import Settings, Side, StartSide, side_of
from tests.support.zookeeper import fresh_chroot


@pytest.fixture(scope="session")
def start_side(zookeeper_server: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> StartSide:
    """`start_side(kind, name, settings)`: a context with a running broker of that kind."""

    def start(kind: str, name: str, settings: Settings) -> AbstractContextManager[Side]:
        chroot = partial(fresh_chroot, zookeeper_server)
        return side_of(kind, name, settings, chroot, tmp_path_factory.mktemp(name))

    return start
