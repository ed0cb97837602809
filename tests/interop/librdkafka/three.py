"""Three of our brokers in three racks, as librdkafka's tests of replicas want them.

Its 0101 takes racks to be called RACK and the broker's id, and finds the nearest replica by them (KIP-392).
Each broker has a listener with SASL PLAIN beside the plain one, for 0135.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.interop.suite import Options
from tests.support.broker import Cluster
from tests.support.secure_side import PLAIN_MODULE, listening
from tests.support.zookeeper import fresh_chroot, start_zookeeper

_USER, _PASSWORD = "tester", "tester-secret"
_SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{PLAIN_MODULE} required username="{_USER}" password="{_PASSWORD}" user_{_USER}="{_PASSWORD}";'
    ),
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


@contextmanager
def three_brokers(options: Options, settings: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """(their plain addresses, what clients that log in need)."""
    directory = Path(tempfile.mkdtemp(prefix="three-", dir=options.scratch))
    zookeeper = start_zookeeper(directory / "zookeeper")
    cluster = Cluster(directory, fresh_chroot(zookeeper))
    try:
        for number in (1, 2, 3):
            cluster.add(number, rack=f"RACK{number}", settings={**_SETTINGS, **settings})
        cluster.start()
        addresses = [f"127.0.0.1:{listening(each)['SASL_PLAINTEXT']}" for each in cluster.brokers.values()]
        yield (
            cluster.bootstrap,
            {
                "bootstrap.servers": ",".join(addresses),
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": _USER,
                "sasl.password": _PASSWORD,
            },
        )
    finally:
        cluster.close()
        zookeeper.stop()
        if kept := os.environ.get("ISTHMUS_KEEP_OUTPUT"):  # a folder; for a person who looks for a cause
            for number, broker in cluster.brokers.items():
                Path(kept, f"three-broker-{number}.log").write_text(broker.output)
