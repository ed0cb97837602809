"""What a partition holds, as a consumer reads it."""

from confluent_kafka import Consumer, KafkaError, TopicPartition


def stored(bootstrap: str, partition: int) -> list[bytes]:
    """Values of a partition of topic `t`, from its first to its last offset."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", partition, 0)])
    values: list[bytes] = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, "the end of the partition was not reached"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return values
            value = message.value()
            assert isinstance(value, bytes)
            values.append(value)
    finally:
        consumer.close()
