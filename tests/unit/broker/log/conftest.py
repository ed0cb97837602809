from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.log import Log, LogConfig
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
