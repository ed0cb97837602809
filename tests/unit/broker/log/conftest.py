"""What tests of logs share: a clock that stands still, logs and managers that are closed at the end."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.log import Log, LogConfig, LogManager
from tests.support.clock import VirtualClock


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that hypothesis examples may write to one after the other."""
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


OpenLog = Callable[..., Log]


@pytest.fixture
def open_log(tmp_path: Path, clock: VirtualClock) -> Iterator[OpenLog]:
    """`open_log(**settings)` opens the log in `t-0`; a second call opens the same files again.

    Settings that `Log.open` knows go there, all others into `LogConfig`.
    """
    directory = tmp_path / "t-0"
    directory.mkdir()
    opened: list[Log] = []
    of_open = ("recovery_point", "start_offset", "high_watermark", "clean", "producer_expiration_ms")

    def open_it(**settings: Any) -> Log:
        how = {name: settings.pop(name) for name in of_open if name in settings}
        opened.append(Log.open(directory, LogConfig(**settings), clock, **how))
        return opened[-1]

    yield open_it
    for log in opened:
        log.release()


OpenManager = Callable[..., LogManager]


@pytest.fixture
def manager(tmp_path: Path, clock: VirtualClock) -> Iterator[OpenManager]:
    """`manager(*dirs, load=True, broker_id=1, cluster_id="c")`; what is still open is closed at the end."""
    opened: list[LogManager] = []

    def open_it(
        *dirs: str, load: bool = True, broker_id: int = 1, cluster_id: str = "c", **more: Any
    ) -> LogManager:
        made = LogManager([tmp_path / name for name in dirs or ("d",)], broker_id, cluster_id, clock, **more)
        opened.append(made)
        if load:
            made.load()
        return made

    yield open_it
    for made in opened:
        made.close()
