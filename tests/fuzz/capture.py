"""Makes the corpus again: frames of real clients, batches of real clients, damage of each kind.

    python -m tests.fuzz.capture

Clients (librdkafka, kafka-python, and Java's console tools where they can be had) talk to a broker through a
proxy that notes what they send: one frame per (API key, version, client), the smallest. Crashers stay.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from protocol.codec import decode_from
from protocol.frames import decode_request_header
from protocol.messages.produce_request import ProduceRequest
from tests.fuzz.corpus import CORPUS
from tests.support.broker import BrokerProcess
from tests.support.zookeeper import fresh_chroot, start_zookeeper
from topology.runtime import free_port

Frames = dict[tuple[int, int, str], bytes]
_LONGEST = 4096


class Tap:
    """A proxy in a thread of its own that keeps what goes to the broker."""

    def __init__(self) -> None:
        self.frames: Frames = {}
        self.client = ""
        self.port = 0
        self.target = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()
        self._ready.wait(10)

    def _run(self) -> None:
        self._loop.run_until_complete(self._open())
        self._loop.run_forever()

    async def _open(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        pump = asyncio.create_task(self._pump(there, writer))
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                size = await reader.readexactly(4)
                frame = await reader.readexactly(int.from_bytes(size, "big"))
                self._keep(frame)
                back.write(size + frame)
                await back.drain()
        pump.cancel()
        back.close()
        writer.close()

    async def _pump(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await there.read(1 << 16):
                writer.write(data)
                await writer.drain()

    def _keep(self, frame: bytes) -> None:
        key, version = struct.unpack_from(">hh", frame)
        place = (key, version, self.client)
        if len(frame) <= _LONGEST and len(frame) < len(self.frames.get(place, bytes(_LONGEST + 1))):
            self.frames[place] = frame


def use_librdkafka(bootstrap: str) -> None:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("captured", 2, 1)])["captured"].result(30)
    admin.describe_configs([ConfigResource(ResourceType.TOPIC, "captured")])
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": codec == "zstd"}
        )
        for number in range(10):
            producer.produce("captured", b"value %d" % number * 5, key=b"key", headers={"codec": codec})
        assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "captured", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["captured"])
    assert consumer.consume(10, 30)
    consumer.commit(asynchronous=False)
    consumer.close()
    admin.list_consumer_groups().result(30)
    admin.describe_consumer_groups(["captured"])["captured"].result(30)
    admin.delete_consumer_groups(["captured"])["captured"].result(30)


def use_kafka_python(bootstrap: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip")
    for number in range(5):
        producer.send("captured", b"from kafka-python %d" % number)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(
        "captured", bootstrap_servers=bootstrap, group_id="python", auto_offset_reset="earliest",
        consumer_timeout_ms=5000,
    )  # fmt: skip
    assert next(iter(consumer))
    consumer.commit()
    consumer.close()


def use_java(bootstrap: str) -> None:
    from tests.support.apache_kafka import kafka_tool

    tools = "org.apache.kafka.tools"
    kafka_tool(f"{tools}.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, "--topic", "captured",
               "--from-beginning", "--max-messages", "5", "--group", "java")  # fmt: skip
    kafka_tool(
        f"{tools}.ConsoleProducer", "--bootstrap-server", bootstrap, "--topic", "captured", text="a\nb\n"
    )
    kafka_tool(f"{tools}.TopicCommand", "--bootstrap-server", bootstrap, "--describe", "--topic", "captured")
    kafka_tool(f"{tools}.GetOffsetShell", "--bootstrap-server", bootstrap, "--topic", "captured")


def main() -> int:
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="fuzz-capture-") as name:
        folder = Path(name)
        zookeeper = start_zookeeper(folder / "zookeeper")
        broker = BrokerProcess(
            folder / "broker", fresh_chroot(zookeeper), 1,
            arguments=("--advertised-listener", f"PLAINTEXT://127.0.0.1:{tap.port}"),
        )  # fmt: skip
        broker.port = tap.target = free_port()  # its ready line shows the advertised one
        try:
            broker.start()
            for client in (use_librdkafka, use_kafka_python, use_java):
                tap.client = client.__name__.removeprefix("use_")
                try:
                    client(f"127.0.0.1:{tap.port}")
                except BaseException as error:
                    print(f"{tap.client}: {error!r}", file=sys.stderr)
        finally:
            broker.kill()
            zookeeper.stop()
    _write(tap.frames)
    return 0


def _write(frames: Frames) -> None:
    for target in ("requests", "dispatcher", "batches", "log_directory"):
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
    for (key, version, client), frame in sorted(frames.items()):
        name = f"{client}-{key:02d}-v{version}"
        (CORPUS / "requests" / name).write_bytes(frame)
        (CORPUS / "dispatcher" / name).write_bytes(len(frame).to_bytes(4, "big") + frame)
        if key == ProduceRequest.API_KEY:
            header, at = decode_request_header(frame)
            request, _ = decode_from(ProduceRequest, header.api_version, memoryview(frame), at)
            records = request.topic_data[0].partition_data[0].records
            (CORPUS / "batches" / name).write_bytes(memoryview(records))  # type: ignore[arg-type]
    for number in range(24):
        data = bytes([number & 1]) + b"".join(
            bytes([number * 3 + at, (number + at) % 6, 0, *os.urandom(2), *os.urandom(7)])
            for at in range(1 + number % 3)
        )
        (CORPUS / "log_directory" / f"damage-{number:02d}").write_bytes(data)
    print(f"{len(frames)} frames")


if __name__ == "__main__":
    sys.exit(main())
