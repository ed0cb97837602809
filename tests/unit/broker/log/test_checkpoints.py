"""Small files: offset checkpoints, identities, producer snapshots; as Kafka writes them, and damaged ones."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log import checkpoints
from broker.log.checkpoints import CheckpointDamaged, MetaProperties
from broker.log.producer_snapshot import SnapshotEntry, decode_snapshot, encode_snapshot
from protocol.types import TopicPartition, uuid_from_text

partitions = st.builds(
    TopicPartition, st.text("abcXYZ019._-", min_size=1, max_size=20), st.integers(0, 2**31 - 1)
)


@settings(deadline=None)
@given(st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=20))
def test_offsets_survive(scratch: Path, offsets: dict[TopicPartition, int]) -> None:
    path = str(scratch / "recovery-point-offset-checkpoint")
    checkpoints.write_offsets(path, offsets)
    assert checkpoints.read_offsets(path) == offsets


def test_offsets_look_as_kafka_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "c"
    checkpoints.write_offsets(str(path), {TopicPartition("t", 0): 15004, TopicPartition("a.b-c", 12): 0})
    assert path.read_text() == "0\n2\nt 0 15004\na.b-c 12 0\n"


def test_missing_and_empty_files_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert checkpoints.read_offsets(str(tmp_path / "empty")) == {}
    assert checkpoints.read_offsets(str(tmp_path / "none")) == {}
    assert checkpoints.read_topic_id(str(tmp_path / "none")) is None
    assert checkpoints.read_meta_properties(str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    "text",
    [
        "1\n0\n",
        "0\n2\nt 0 1\n",
        "0\n1\nt 0\n",
        "0\n1\nt zero 1\n",
        "0\n",
        "x\n",
        "\xff\xfe",
        f"0\n1\nt 0 {1 << 63}\n",
        "0\n1\nt 0 -1\n",
    ],
)
def test_damaged_checkpoints_are_told_from_empty_ones(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointDamaged, match=str(path)):
        checkpoints.read_offsets(str(path))


def test_partition_metadata_is_kafkas(tmp_path: Path) -> None:
    path = tmp_path / "partition.metadata"
    topic_id = uuid_from_text("cpNOi9HQQfeiXXXijjChfA")
    checkpoints.write_topic_id(str(path), topic_id)
    assert path.read_bytes() == b"version: 0\ntopic_id: cpNOi9HQQfeiXXXijjChfA"
    assert checkpoints.read_topic_id(str(path)) == topic_id


@pytest.mark.parametrize(
    "text",
    [
        "#\n#Sat Nov 28 00:59:28 UTC 2026\nnode.id=1\ndirectory.id=rfcH1d\nversion=1\ncluster.id=57BzrdSJ\n",
        "version=0\nbroker.id=1\ncluster.id=57BzrdSJ\n",
    ],
)
def test_meta_properties_of_kraft_and_zookeeper_brokers(tmp_path: Path, text: str) -> None:
    path = tmp_path / "meta.properties"
    path.write_text(text)
    assert checkpoints.read_meta_properties(str(path)) == MetaProperties(1, "57BzrdSJ")


def test_meta_properties_without_an_owner_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_text("version=0\nbroker.id=one\ncluster.id=x\n")
    with pytest.raises(CheckpointDamaged, match=r"broker\.id"):
        checkpoints.read_meta_properties(str(path))


int64 = st.integers(-1, 2**63 - 1)
entries = st.builds(
    SnapshotEntry, int64, st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1), int64,
    st.integers(0, 2**31 - 1), int64, st.integers(-1, 2**31 - 1), int64,
)  # fmt: skip


@given(st.lists(entries, max_size=10))
def test_producer_snapshots_survive(found: list[SnapshotEntry]) -> None:
    assert decode_snapshot(encode_snapshot(found), "x") == found


@given(st.lists(entries, max_size=3), st.data())
def test_no_single_flipped_byte_passes(found: list[SnapshotEntry], data: st.DataObject) -> None:
    damaged = bytearray(encode_snapshot(found))
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CheckpointDamaged):
        decode_snapshot(bytes(damaged), "x")


def test_a_snapshot_that_kafka_wrote() -> None:
    """Five idempotent producers after 3,000 records each, by Apache Kafka 4.3.1."""
    data = bytes.fromhex(
        "0001523f0c1100000005"
        "0000000000000000000000000bb70000000000000bb7000000590000018bcfe573b7ffffffffffffffffffffffff"
        "0000000000000001000000000bb7000000000000176f000000590000018bcfe573b7ffffffffffffffffffffffff"
        "0000000000000002000000000bb70000000000002327000000590000018bcfe573b7ffffffffffffffffffffffff"
        "0000000000000003000000000bb70000000000002edf000000590000018bcfe573b7ffffffffffffffffffffffff"
        "0000000000000004000000000bb70000000000003a97000000590000018bcfe573b7ffffffffffffffffffffffff"
    )
    found = decode_snapshot(data, "x")
    assert found[1] == SnapshotEntry(1, 0, 2999, 5999, 89, 1_700_000_002_999, -1, -1)
    assert [entry.producer_id for entry in found] == [0, 1, 2, 3, 4]
    assert encode_snapshot(found) == data
