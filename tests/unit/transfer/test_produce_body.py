"""The short way to a Produce request writes what the codec writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.codec.codec import dumps
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.types import TopicPartition
from transfer.kafka.produce_body import VERSIONS, produce_body

_batches = st.dictionaries(
    st.builds(TopicPartition, st.text(min_size=1, max_size=150), st.integers(0, 2**31 - 1)),
    st.tuples(st.just(b"h" * 61), st.integers(0, 40_000).map(bytes)),
    max_size=8,
)


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"-")[:16]


@pytest.mark.parametrize("version", VERSIONS)
@given(batches=_batches, timeout_ms=st.integers(0, 2**31 - 1))
def test_it_is_what_the_codec_writes(version, batches, timeout_ms):
    rows: dict[str, list[PartitionProduceData]] = {}
    for (name, index), segments in batches.items():
        rows.setdefault(name, []).append(PartitionProduceData(index=index, records=list(segments)))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(name=name, topic_id=topic_id(name), partition_data=data)
            for name, data in rows.items()
        ],
    )
    pairs = [(tp, list(segments)) for tp, segments in batches.items()]
    body = produce_body(version, timeout_ms, pairs, topic_id)
    assert b"".join(body or ()) == dumps(request, version)


def test_older_versions_go_the_general_way():
    assert produce_body(8, 1000, [], topic_id) is None
