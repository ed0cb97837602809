"""C25: the probe watches every broker, also one that was added, and changes nothing during an outage."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.broker import Cluster
from tests.support.commands import isthmus
from tests.support.slow import slow
from tests.support.three_brokers import QUICK, StartThree, admin
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    slow("four brokers, one of them paused; unit tests have the rules"),
]
ROOT = Path(__file__).parents[2]
TOPIC = "isthmus-probe"


class RunningProbe:
    """What its metrics say."""

    def __init__(self, url: str) -> None:
        self._url = url

    def samples(self, name: str) -> dict[tuple[str, ...], float]:
        """Values by labels other than the cluster, in the order of their names."""
        with urlopen(self._url, timeout=30) as answer:
            text = answer.read().decode()
        return {
            tuple(value for key, value in sorted(sample.labels.items()) if key != "cluster"): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        }

    def up(self) -> dict[int, bool]:
        return {int(number): bool(value) for (number,), value in self.samples("isthmus_probe_up").items()}

    def messages(self, broker: int, outcome: str) -> float:
        return self.samples("isthmus_probe_messages_total")[str(broker), outcome]

    def wait_up(self, **wanted: bool) -> None:
        """`b1=True`: broker 1 is well."""
        expected = {int(name[1:]): state for name, state in wanted.items()}
        wait_until(lambda: self.up() == expected, f"{expected} by the probe", bound_s=90)


@contextmanager
def probing(cluster: Cluster, folder: Path) -> Iterator[RunningProbe]:
    """`isthmus probe` as a process of its own."""
    log = folder / f"probe-{len(list(folder.iterdir()))}.log"
    words = ("--cluster", cluster.bootstrap, "--port", "0", "--interval", "0.5", "--deadline", "4")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "isthmus", "probe", *words],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "ISTHMUS_PARENT": str(os.getpid()), "PYTHONUNBUFFERED": "1"},
        )
    ready = re.compile(r"isthmus probe of \S+ ready: (\S+)")
    try:
        wait_until(lambda: process.poll() is not None or ready.search(log.read_text()), "the probe is ready")
        found = ready.search(log.read_text())
        assert found is not None, log.read_text()
        yield RunningProbe(found[1])
    finally:
        process.terminate()
        process.wait(60)


def assignment(cluster: Cluster) -> list[list[int]]:
    topic = admin(cluster).list_topics(TOPIC, timeout=30).topics[TOPIC]
    return [topic.partitions[index].replicas for index in sorted(topic.partitions)]


def test_growth_an_outage_a_restart_of_the_probe_and_a_pause(start_three: StartThree, tmp_path: Path) -> None:
    made = start_three()
    with probing(made, tmp_path) as probe:
        probe.wait_up(b1=True, b2=True, b3=True)
        made.add(4, rack="r4", settings=QUICK).start()
        probe.wait_up(b1=True, b2=True, b3=True, b4=True)
        assert probe.samples("isthmus_probe_brokers")["watched",] == 4
        before = assignment(made)
        assert sorted(before) == [[1], [2], [3], [4]]
        made.brokers[2].kill()
        probe.wait_up(b1=True, b2=False, b3=True, b4=True)
    with probing(made, tmp_path) as probe:  # a new one, which knows nothing of before
        probe.wait_up(b1=True, b3=True, b4=True, b2=False)
        assert assignment(made) == before
        made.add(5, settings=QUICK).start()
        wait_until(lambda: probe.samples("isthmus_probe_brokers").get(("not_watched",)) == 1, "5 is named")
        assert assignment(made) == before, "changed during an outage"
        told = isthmus("probe", "--cluster", made.bootstrap, "--for", "8")
        assert told.returncode == 3
        assert re.search(r"^ *5 +not watched", told.stdout, re.MULTILINE), told.stdout
        made.brokers[5].stop()
        made.brokers[2].start()
        probe.wait_up(b1=True, b2=True, b3=True, b4=True)
        lost = {number: probe.messages(number, "lost") for number in (1, 2, 3, 4)}
        late = probe.messages(4, "late")
        made.brokers[4].pause()
        try:
            probe.wait_up(b1=True, b2=True, b3=True, b4=False)
            sent = probe.messages(1, "in_time")
            wait_until(lambda: probe.messages(1, "in_time") > sent + 20, "ten seconds of it")
        finally:
            made.brokers[4].resume()
        probe.wait_up(b1=True, b2=True, b3=True, b4=True)
        assert probe.messages(4, "late") > late
        assert {number: probe.messages(number, "lost") for number in (1, 2, 3, 4)} == lost
