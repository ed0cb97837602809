"""ZooKeeper nodes as Kafka writes them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config import Endpoint
from broker.control import nodes
from protocol.types import new_topic_id, uuid_from_text

_ids = st.integers(0, 2**31 - 1)


def test_kafkas_own_broker_node_is_read():
    # As a Kafka 3.9 broker in ZooKeeper mode writes it.
    data = (
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","IN":"SSL"},'
        b'"endpoints":["PLAINTEXT://kafka1:9092","IN://[::1]:9093"],"jmx_port":-1,"port":9092,'
        b'"host":"kafka1","version":5,"timestamp":"1700000000000","rack":"east"}'
    )
    node = nodes.BrokerNode.decode(data)
    assert node.endpoints == (
        Endpoint("PLAINTEXT", "kafka1", 9092, "PLAINTEXT"),
        Endpoint("IN", "::1", 9093, "SSL"),
    )
    assert (node.rack, node.timestamp_ms) == ("east", 1700000000000)


def test_our_broker_node_has_kafkas_fields():
    endpoints = (Endpoint("PLAINTEXT", "kafka1", 9092, "PLAINTEXT"),)
    value = json.loads(nodes.BrokerNode(endpoints, None, 5).encode())
    assert value == {
        "version": 5,
        "host": "kafka1",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "5",
        "endpoints": ["PLAINTEXT://kafka1:9092"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "features": {},
    }


def test_kafkas_own_topic_node_is_read():
    data = (
        b'{"removing_replicas":{},"partitions":{"10":[1,2],"2":[2,3]},"topic_id":"-8uoV-aOTZqwDkYkUTt_Mw",'
        b'"adding_replicas":{},"version":3}'
    )
    node = nodes.TopicNode.decode(data)
    assert node.topic_id == uuid_from_text("-8uoV-aOTZqwDkYkUTt_Mw")
    assert list(node.assignment.items()) == [(2, (2, 3)), (10, (1, 2))]


@given(
    st.dictionaries(
        st.integers(0, 50), st.lists(_ids, min_size=1, max_size=4, unique=True).map(tuple), min_size=1
    )
)
def test_topic_nodes_come_back(assignment):
    node = nodes.TopicNode(new_topic_id(), dict(sorted(assignment.items())))
    assert nodes.TopicNode.decode(node.encode()) == node


@given(st.integers(-1, 100), _ids, st.lists(_ids, min_size=1).map(tuple), _ids)
def test_partition_states_come_back(leader, epoch, isr, controller_epoch):
    state = nodes.PartitionState(leader, epoch, isr, controller_epoch)
    assert nodes.PartitionState.decode(state.encode()) == state


def test_small_nodes_come_back():
    assert nodes.decode_controller(nodes.encode_controller(3, 5)) == 3
    assert json.loads(nodes.encode_controller(3, 5))["timestamp"] == "5"
    assert nodes.decode_epoch(nodes.encode_epoch(12)) == 12
    assert nodes.decode_cluster_id(nodes.encode_cluster_id("abc")) == "abc"
    assert nodes.decode_config(nodes.encode_config({"a": "1"})) == {"a": "1"}
    assert nodes.decode_config_change(nodes.encode_config_change("topics/t")) == "topics/t"
    block = nodes.ProducerIdBlock(1, 1000, 1999)
    assert nodes.ProducerIdBlock.decode(block.encode()) == block
    assert json.loads(block.encode())["block_start"] == "1000"


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b"\xff", b"{}", b'{"partitions":7,"isr":3}', b'{"id":5}']
)
@pytest.mark.parametrize(
    "decode",
    [
        nodes.BrokerNode.decode,
        nodes.TopicNode.decode,
        nodes.PartitionState.decode,
        nodes.ProducerIdBlock.decode,
        nodes.decode_controller,
        nodes.decode_epoch,
        nodes.decode_cluster_id,
        nodes.decode_config_change,
    ],
)
def test_damaged_nodes_are_one_kind_of_error(decode, data):
    with pytest.raises(nodes.NodeFormatError):
        decode(data)


def test_a_registration_without_endpoints_is_none() -> None:
    """It made every reign of every controller fail: there is nowhere to send orders to."""
    with pytest.raises(nodes.NodeFormatError, match="no endpoints"):
        nodes.BrokerNode.decode(b'{"version":5,"endpoints":[],"host":null,"port":-1,"timestamp":"0"}')


NUMBERS = ["1e99", "Infinity", "-7", "99999999999", '"x"', "[]", "true", "null"]


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_that_no_broker_can_be_told_are_damage(number: str) -> None:
    """They passed once, and then the order with them could not be encoded: no controller lasted."""
    for text in (
        f'{{"leader":1,"leader_epoch":{number},"isr":[1],"controller_epoch":1}}',
        f'{{"leader":1,"leader_epoch":1,"isr":[{number}],"controller_epoch":1}}',
        f'{{"leader":1,"leader_epoch":1,"isr":[1],"controller_epoch":{number}}}',
        f'{{"leader":{number},"leader_epoch":1,"isr":[1],"controller_epoch":1}}',
    ):
        with pytest.raises(nodes.NodeFormatError):
            nodes.PartitionState.decode(text.encode())
    with pytest.raises(nodes.NodeFormatError):
        nodes.TopicNode.decode(f'{{"partitions":{{"0":[{number}]}}}}'.encode())


@pytest.mark.parametrize(
    "text",
    [
        '{"partitions":{"0":[]}}',
        '{"partitions":{"0":[1,1]}}',
        '{"partitions":{"-1":[1]}}',
        '{"partitions":{"0":[1]},"topic_id":"short"}',
        "[" * 100_000,
    ],
)
def test_topics_that_no_broker_can_host_are_damage(text: str) -> None:
    with pytest.raises(nodes.NodeFormatError):
        nodes.TopicNode.decode(text.encode())


def test_a_state_in_which_nobody_is_in_sync_is_damage() -> None:
    with pytest.raises(nodes.NodeFormatError, match="nobody is in sync"):
        nodes.PartitionState.decode(b'{"leader":1,"leader_epoch":1,"isr":[],"controller_epoch":1}')


@pytest.mark.parametrize("text", ["7", '["PLAINTEXT://h:1x"]', '["PLAINTEXT://h:99999"]', "[7]"])
def test_a_registration_that_cannot_be_reached_is_damage(text: str) -> None:
    with pytest.raises(nodes.NodeFormatError):
        nodes.BrokerNode.decode(f'{{"version":5,"endpoints":{text}}}'.encode())
