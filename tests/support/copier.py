"""A read-process-write client as a process of its own: one transaction for each record of `in`, into `out`.

    python -m tests.support.copier BOOTSTRAP COUNT [SECONDS]

Prints a line for each record that it has committed, and ends with 0 when it has done COUNT or finds no more
for so many seconds (5).
A process, because librdkafka's producer may wait for ever in `send_offsets_to_transaction` when its broker
dies at that moment, whatever time it was given; a client that hangs is killed, one more fault to get over.
"""

import subprocess
import sys

from confluent_kafka import Consumer, TopicPartition

from tests.support.transactions import TIMEOUT_S, producer

HANGS_AFTER_S = 45.0


def copy(bootstrap: str, count: int, patience_s: float) -> None:
    """Reads, writes and commits positions until `count` are done or nothing comes any more."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "copier",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    made = producer(bootstrap, "copier")
    consumer.assign([TopicPartition("in", 0)])
    committed = consumer.committed([TopicPartition("in", 0)], TIMEOUT_S)[0].offset
    consumer.assign([TopicPartition("in", 0, max(0, committed))])
    done = 0
    while done < count and (message := consumer.poll(patience_s)) is not None:
        if message.error() is not None:
            continue
        made.begin_transaction()
        made.produce("out", message.value(), partition=0)
        position = [TopicPartition("in", 0, message.offset() + 1)]
        made.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), TIMEOUT_S)
        made.commit_transaction(TIMEOUT_S)
        done += 1
        sys.stdout.write(f"{message.offset()}\n")
        sys.stdout.flush()
    consumer.close()


def copied(bootstrap: str, count: int) -> int | None:
    """Runs the client; how many it committed, None where it gave up or had to be killed."""
    command = [sys.executable, "-m", "tests.support.copier", bootstrap, str(count)]
    try:
        ended = subprocess.run(command, stdout=subprocess.PIPE, timeout=HANGS_AFTER_S, check=False)
    except subprocess.TimeoutExpired:
        return None
    return len(ended.stdout.split()) if ended.returncode == 0 else None


if __name__ == "__main__":
    copy(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 5.0)
