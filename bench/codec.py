#!/usr/bin/env python3
"""Codec timings beside kio and kafka-python, in the same run: `python -m bench.codec [--rounds 7] [--json]`.

Every row is the best of several rounds, in microseconds. All three get the same bytes to parse and the same
values to write (their objects come out of their own parsers), and the written bytes are compared first.
Building the objects is not part of a row.
"""

import argparse
import io
import json
import timeit
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kafka.protocol.consumer.fetch import FetchResponse as KpFetchResponse
from kafka.protocol.consumer.group import JoinGroupRequest as KpJoinGroupRequest
from kafka.protocol.consumer.group import JoinGroupResponse as KpJoinGroupResponse
from kafka.protocol.metadata.metadata import MetadataResponse as KpMetadataResponse
from kafka.protocol.producer.produce import ProduceRequest as KpProduceRequest
from kafka.protocol.producer.produce import ProduceResponse as KpProduceResponse
from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from protocol.api import APIS
from protocol.codec import decode, dumps, encode
from protocol.codec.schema import Message, Request
from protocol.frames import decode_request_header, encode_request
from protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)


class Case(NamedTuple):
    label: str
    message: Message
    version: int
    kafka_python: Any
    parse: bool


def produce_request(partitions: int, size: int) -> ProduceRequest:
    data = [PartitionProduceData(index=i, records=bytes(size)) for i in range(partitions)]
    return ProduceRequest(
        acks=-1, timeout_ms=30000, topic_data=[TopicProduceData(name="flights", partition_data=data)]
    )


def fetch_response(partitions: int, size: int) -> FetchResponse:
    data = [
        PartitionData(
            partition_index=i,
            high_watermark=1000,
            last_stable_offset=1000,
            aborted_transactions=None,
            records=bytes(size),
        )
        for i in range(partitions)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="flights", partitions=data)])


def metadata_response(partitions: int) -> MetadataResponse:
    data = [
        MetadataResponsePartition(
            partition_index=i,
            leader_id=i % 3,
            leader_epoch=4,
            replica_nodes=[0, 1, 2],
            isr_nodes=[0, 1, 2],
        )
        for i in range(partitions)
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=i, host=f"broker-{i}", port=9092) for i in range(3)],
        cluster_id="AAAAAAAAAAAAAAAAAAAAAA",
        topics=[MetadataResponseTopic(name="flights", topic_id=bytes(range(16)), partitions=data)],
    )


def cases() -> Iterator[Case]:
    for count, size, text in ((1, 1 << 20, "1 x 1 MB"), (100, 10_000, "100 x 10 KB"), (1, 1000, "1 x 1 KB")):
        yield Case(f"parse Produce v9, {text}", produce_request(count, size), 9, KpProduceRequest, True)
    join = JoinGroupRequest(
        group_id="readers",
        session_timeout_ms=45000,
        rebalance_timeout_ms=300000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=n, metadata=bytes(40)) for n in ("range", "sticky")],
    )
    yield Case("parse JoinGroup v9 request", join, 9, KpJoinGroupRequest, True)
    for count, size, text in ((1, 1 << 20, "1 x 1 MB"), (100, 10_000, "100 x 10 KB")):
        yield Case(
            f"write Fetch v12 response, {text}", fetch_response(count, size), 12, KpFetchResponse, False
        )
    yield Case(
        "write Metadata v12 response, 1000 partitions", metadata_response(1000), 12, KpMetadataResponse, False
    )
    joined = JoinGroupResponse(
        generation_id=3,
        protocol_type="consumer",
        protocol_name="range",
        leader="member-0",
        member_id="member-0",
        members=[JoinGroupResponseMember(member_id=f"member-{i}", metadata=bytes(40)) for i in range(50)],
    )
    yield Case("write JoinGroup v9 response, 50 members", joined, 9, KpJoinGroupResponse, False)
    produced = PartitionProduceResponse(index=0, base_offset=123)
    answer = ProduceResponse(responses=[TopicProduceResponse(name="flights", partition_responses=[produced])])
    yield Case("write Produce v9 response, 1 partition", answer, 9, KpProduceResponse, False)


def microseconds(call: Callable[[], object], rounds: int) -> float:
    timer = timeit.Timer(call)
    number, taken = timer.autorange()
    number = max(1, int(number * 0.05 / taken))
    return min(timer.repeat(rounds, number)) / number * 1e6


def measure(case: Case, rounds: int) -> dict[str, float]:
    cls, version = type(case.message), case.version
    wire = dumps(case.message, version)
    kind = "request" if isinstance(case.message, Request) else "response"
    module = load_payload_module(APIS[cls.API_KEY].key, version, EntityType[kind])
    kio_class = getattr(module, cls.__name__)
    read, write = entity_reader(kio_class), entity_writer(kio_class)
    view = memoryview(bytearray(wire))
    readonly = memoryview(wire)
    kio_object, _ = read(readonly, 0)
    kp_object = case.kafka_python.decode(wire, version=version)
    kp_object._header = None  # kafka-python 3.0 needs it to be set before it encodes
    if case.parse:
        calls: dict[str, Callable[[], object]] = {
            "isthmus": lambda: decode(cls, version, view),
            "kio": lambda: read(readonly, 0),
            "kafka-python": lambda: case.kafka_python.decode(wire, version=version),
        }
    else:

        def kio_write() -> bytes:
            out = io.BytesIO()
            write(out, kio_object)
            return out.getvalue()

        assert kio_write() == wire == kp_object.encode(version=version)
        calls = {
            "isthmus": lambda: encode(case.message, version),
            "kio": kio_write,
            "kafka-python": lambda: kp_object.encode(version=version),
        }
    return {name: microseconds(call, rounds) for name, call in calls.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = {case.label: measure(case, arguments.rounds) for case in cases()}
    frame = b"".join(encode_request(produce_request(1, 10), 9, 7, "client-1"))[4:]
    rows["parse request header v2"] = {
        "isthmus": microseconds(lambda: decode_request_header(frame), arguments.rounds)
    }
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    print(
        f"{'microseconds, best of ' + str(arguments.rounds):46}{'isthmus':>10}{'kio':>10}{'kafka-python':>14}"
    )
    for label, row in rows.items():
        numbers = [f"{row[name]:.2f}" if name in row else "-" for name in ("isthmus", "kio", "kafka-python")]
        print(f"{label:46}{numbers[0]:>10}{numbers[1]:>10}{numbers[2]:>14}")


if __name__ == "__main__":
    main()
