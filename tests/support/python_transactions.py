"""A program: `python_transactions CLIENT BOOTSTRAP TOPIC ROUNDS` with kafka-python or aiokafka.

Commits and aborts by turns, a record and a position each. It runs in a
process of its own, because the clients warn about what Python will drop, and warnings are errors in tests.
"""

import asyncio
import sys


def run_kafka_python(bootstrap: str, topic: str, rounds: int) -> None:
    import kafka

    made = kafka.KafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=topic, transaction_timeout_ms=60_000
    )
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=topic, enable_auto_commit=False)
    try:
        made.init_transactions()
        for number in range(rounds):
            for commit in (True, False):
                made.begin_transaction()
                made.send(topic, f"{number}-{commit}".encode(), partition=0)
                position = kafka.OffsetAndMetadata(number + commit, "", -1)
                made.send_offsets_to_transaction(
                    {kafka.TopicPartition(topic, 0): position}, consumer.group_metadata()
                )
                if commit:
                    made.commit_transaction()
                else:
                    made.abort_transaction()
    finally:
        made.close(timeout=10)
        consumer.close()


async def run_aiokafka(bootstrap: str, topic: str, rounds: int) -> None:
    import aiokafka

    made = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    await made.start()
    try:
        for number in range(rounds):
            for commit in (True, False):
                await made.begin_transaction()
                await made.send_and_wait(topic, f"{number}-{commit}".encode(), partition=0)
                await made.send_offsets_to_transaction(
                    {aiokafka.TopicPartition(topic, 0): number + commit}, topic
                )
                await (made.commit_transaction() if commit else made.abort_transaction())
    finally:
        await made.stop()


if __name__ == "__main__":
    client, bootstrap, topic, rounds = sys.argv[1:]
    if client == "aiokafka":
        asyncio.run(run_aiokafka(bootstrap, topic, int(rounds)))
    else:
        run_kafka_python(bootstrap, topic, int(rounds))
