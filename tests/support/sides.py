"""A broker to test against: ours, or Apache Kafka as the oracle of what a test expects.

A test that takes `side` runs against ours; with ISTHMUS_ORACLE=1 in the environment it runs against Apache
Kafka too (see `tests.support.apache_kafka` for what that needs).
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from protocol.client import Connection
from tests.support.apache_kafka import apache_kafka, kafka_data
from tests.support.broker import BrokerProcess

KAFKA = "kafka"
OURS = "isthmus"
SIDES = [
    OURS,
    pytest.param(
        KAFKA,
        marks=[
            pytest.mark.interop,
            pytest.mark.skipif(
                os.environ.get("ISTHMUS_ORACLE") != "1", reason="Apache Kafka as oracle: set ISTHMUS_ORACLE=1"
            ),
        ],
    ),
]
_ALONE = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@dataclass
class Side:
    bootstrap: str
    broker: BrokerProcess | None
    """None for Apache Kafka."""
    data: Path
    """The log directory."""

    async def connect(self) -> Connection:
        host, _, port = self.bootstrap.partition(":")
        return await Connection.open(host, int(port))


Settings = Mapping[str, str]
StartSide = Callable[[str, str, Settings], AbstractContextManager[Side]]


@contextmanager
def side_of(
    kind: str, name: str, settings: Settings, chroot: Callable[[], str], directory: Path
) -> Iterator[Side]:
    """A running single broker with these settings, ended afterwards."""
    if kind == KAFKA:
        # It would wait half a minute before its first retention and cleaning.
        mine = {**_ALONE, "log.initial.task.delay.ms": "300", **settings}
        texts = [f"{key}={text}" for key, text in mine.items()]
        with apache_kafka(name, *texts) as bootstrap:
            yield Side(bootstrap, None, kafka_data(name, bootstrap))
        return
    broker = BrokerProcess(directory, chroot(), 1, settings={**_ALONE, **settings})
    try:
        broker.start()
        yield Side(broker.bootstrap, broker, directory / "data" / "log")
    finally:
        broker.kill()
