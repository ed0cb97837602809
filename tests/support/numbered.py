"""A producer whose records are numbered per partition, and what became of them somewhere else.

The judge of fault tests: what was acknowledged has to be there, in order; what is there twice is counted.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

import confluent_kafka


class NumberedProducer:
    """Writes numbers in turn to all partitions of a topic from a thread, until `stop`."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: int, size: int = 100) -> None:
        self._topic, self._partitions, self._size = topic, partitions, size
        self._pause = partitions / per_second
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )
        self.acknowledged = [0] * partitions
        """How many of each partition, all from 0 on."""
        self.failed: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="numbered-producer")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns once all is acknowledged."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._ended.is_set():
            for partition in range(self._partitions):
                value = b"%d" % number
                self._producer.produce(
                    self._topic, value.ljust(self._size), partition=partition, callback=self._done
                )
            number += 1
            self._producer.poll(0)
            self._ended.wait(self._pause)
        self._producer.flush(60)

    def _done(self, error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged[message.partition() or 0] += 1


@dataclass
class Verdict:
    """Of one partition, or added up."""

    records: int = 0
    lost: int = 0
    duplicates: int = 0
    reordered: int = 0
    per_partition: list["Verdict"] = field(default_factory=list)


def judge(wanted: int, found: Iterable[int]) -> Verdict:
    """Numbers 0..wanted-1 in the order in which they were found. A copy that goes back and repeats what was
    there already is a duplicate; one that is new and not the next is out of order."""
    verdict = Verdict()
    seen: set[int] = set()
    following = 0
    for number in found:
        verdict.records += 1
        if number in seen:
            verdict.duplicates += 1
        elif number != following:
            verdict.reordered += 1
        seen.add(number)
        following = max(following, number + 1)
    verdict.lost = len(set(range(wanted)) - seen)
    return verdict


def together(verdicts: list[Verdict]) -> Verdict:
    return Verdict(
        *(
            sum(getattr(one, name) for one in verdicts)
            for name in ("records", "lost", "duplicates", "reordered")
        ),
        verdicts,
    )
