"""Connectors of Kafka Connect as JSON: all shapes of the REST API, which connector a setting counts in, the
worker's file beside it, what is wrong."""

import contextlib
import json

import pytest

from replicator.mirrormaker.forms import is_mirrormaker_file, read_links
from replicator.mirrormaker.remarks import MirrorMakerFileError

JAVA = "org.apache.kafka.connect.mirror"
ENDS = {
    "source.cluster.alias": "east",
    "target.cluster.alias": "west",
    "source.cluster.bootstrap.servers": "e:9092",
    "target.cluster.bootstrap.servers": "w:9092",
}
SOURCE = {
    "connector.class": f"{JAVA}.MirrorSourceConnector",
    **ENDS,
    "source.cluster.security.protocol": "SASL_PLAINTEXT",
    "source.cluster.sasl.mechanism": "PLAIN",
    "source.cluster.sasl.jaas.config": 'a.PlainLoginModule required username="u" password="hunter2";',
    "topics": r"orders\..*",
    "replication.factor": 1,
    "sync.topic.acls.enabled": False,
    "producer.override.max.request.size": "3000000",
    "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "tasks.max": "4",
    "groups": "shop-.*",
}
CHECKPOINT = {
    **SOURCE,
    "connector.class": f"{JAVA}.MirrorCheckpointConnector",
    "sync.group.offsets.enabled": "true",
    "emit.checkpoints.interval.seconds": "7",
    "tasks.max": "1",
}
HEARTBEAT = {
    "connector.class": f"{JAVA}.MirrorHeartbeatConnector",
    **ENDS,
    "emit.heartbeats.interval.seconds": "3",
}
WORKER = """
bootstrap.servers=w:9092
group.id=connect
offset.storage.topic=connect-offsets
offset.storage.partitions=5
status.storage.topic=connect-status
config.storage.topic=connect-configs
plugin.path=/opt
"""


def posted(name, config):
    return {"name": name, "config": config}


def without(left_out):
    return {name: value for name, value in SOURCE.items() if name != left_out}


ALL = [posted("copy", SOURCE), posted("marks", CHECKPOINT), posted("beats", HEARTBEAT)]


@pytest.fixture
def read(tmp_path):
    def parsed(text, *, worker=WORKER, name="connectors.json"):
        if worker is not None:
            (tmp_path / "connect-distributed.properties").write_text(worker)
        file = tmp_path / name
        file.write_text(text if isinstance(text, str) else json.dumps(text, indent=1))
        assert is_mirrormaker_file(file)
        return read_links(file)

    return parsed


@pytest.fixture
def problems(read):
    def found(text, **how):
        with pytest.raises(MirrorMakerFileError) as raised:
            read(text, **how)
        return [str(problem) for problem in raised.value.problems]

    return found


def test_three_connectors_are_one_link(read):
    found = read(ALL)
    (link,) = found.links
    assert (link.name, link.source.bootstrap, link.target.bootstrap) == ("east->west", "e:9092", "w:9092")
    assert link.source.properties["security.protocol"] == "SASL_PLAINTEXT"
    assert (link.topics, link.groups, link.replication_factor) == ((r"orders\..*",), ("shop-.*",), 1)
    assert (link.sync_topic_acls, link.sync_group_offsets) == (False, True)
    assert (link.emit_checkpoints_interval_s, link.emit_heartbeats_interval_s) == (7, 3)
    assert (link.emit_checkpoints, link.emit_heartbeats) == (True, True)
    assert link.flow.produce_request_bytes == 3_000_000
    assert link.take_over.model_dump() == {
        "offsets_topic": "connect-offsets",
        "connector": "copy",
        "group": "connect",
        "status_topic": "connect-status",
        "partitions": 5,
    }
    said = {remark.setting: remark for remark in found.remarks}
    assert sorted(said) == ["key.converter of copy", "tasks.max of copy"]
    assert said["tasks.max of copy"].line == 1 + next(
        number
        for number, line in enumerate(json.dumps(ALL, indent=1).splitlines())
        if '"tasks.max": "4"' in line
    )
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize(
    "text",
    [
        posted("copy", SOURCE),
        {"name": "copy", "config": SOURCE, "tasks": [{"connector": "copy", "task": 0}], "type": "source"},
        {**SOURCE, "name": "copy"},
        [{**SOURCE, "name": "copy"}],
        {"copy": {"info": posted("copy", SOURCE), "status": {"connector": {"state": "RUNNING"}}}},
        {"copy": SOURCE},
        {"connectors": [posted("copy", SOURCE), posted("sink", {"connector.class": "org.example.Sink"})]},
    ],
)
def test_whatever_the_rest_api_takes_or_returns(read, text):
    (link,) = read(text).links
    assert (link.name, link.take_over.connector) == ("east->west", "copy")


def test_several_one_after_the_other_as_curl_appends_them(read):
    text = "".join(json.dumps(one) for one in ALL) + "\n"
    (link,) = read(text).links
    assert (link.emit_heartbeats, link.sync_group_offsets) == (True, True)


def test_connect_standalones_properties_are_read_too(read):
    text = "".join(f"{name}={value}\n" for name, value in SOURCE.items()).replace("\\", "\\\\")
    (link,) = read(f"name=copy\n{text}", name="copy.properties").links
    assert (link.topics, link.take_over.connector) == ((r"orders\..*",), "copy")


def test_what_is_not_there_is_not_done(read):
    found = read([posted("copy", SOURCE)])
    (link,) = found.links
    assert (link.emit_checkpoints, link.sync_group_offsets, link.emit_heartbeats) == (False, False, False)
    said = [str(remark) for remark in found.remarks]
    assert any("no MirrorCheckpointConnector of east->west" in text for text in said)
    assert any("groups of copy: has no effect in a MirrorSourceConnector" in text for text in said)
    off = {**CHECKPOINT, "enabled": "false"}
    (link,) = read([posted("copy", SOURCE), posted("marks", off)]).links
    assert not link.sync_group_offsets


def test_a_setting_counts_in_its_own_connector(read):
    other = {**CHECKPOINT, "groups": "mine", "topics": "x", "consumer.auto.offset.reset": "latest"}
    found = read([posted("copy", SOURCE), posted("marks", other)])
    (link,) = found.links
    assert (link.groups, link.topics, link.start) == (("mine",), (r"orders\..*",), "earliest")
    said = {(remark.setting, remark.text.partition(":")[0]) for remark in found.remarks}
    assert ("groups of copy", "has no effect in a MirrorSourceConnector") in said
    no_effect = {name for name, text in said if text == "has no effect here"}
    assert no_effect >= {"topics of marks", "consumer.auto.offset.reset of marks"}


def test_connectors_of_several_pairs_and_heartbeats_alone(read):
    back = {**ENDS, "source.cluster.alias": "west", "target.cluster.alias": "east"}
    found = read([posted("copy", SOURCE), posted("b", {**SOURCE, "source.cluster.alias": "north"}),
                  posted("beats", {**HEARTBEAT, **back})])  # fmt: skip
    assert [link.name for link in found.links] == ["east->west", "north->west"]
    assert [link.take_over.connector for link in found.links] == ["copy", "b"]
    assert any("no link writes these heartbeats" in remark.text for remark in found.remarks)


def test_a_target_without_a_name_has_mirrormakers(read):
    assert read(posted("copy", without("target.cluster.alias"))).links[0].name == "east->target"


def test_the_workers_providers_count(read, problems, tmp_path):
    (tmp_path / "passwords.properties").write_text("east = hunter3\n")
    reference = f"${{mine:{tmp_path}/passwords.properties:east}}"
    jaas = f'a.PlainLoginModule required username="u" password="{reference}";'
    config = {**SOURCE, "source.cluster.sasl.jaas.config": jaas}
    java = "org.apache.kafka.common.config.provider.FileConfigProvider"
    worker = f"{WORKER}config.providers=mine,vault\nconfig.providers.mine.class={java}\n"
    worker += "config.providers.vault.class=org.example.Vault\n"  # for other connectors
    (link,) = read(posted("copy", config), worker=worker).links
    assert "hunter3" in link.source.properties["sasl.jaas.config"]
    (problem,) = problems(posted("copy", config))
    assert "source.cluster.sasl.jaas.config of copy: 'mine' is a config provider of the Connect" in problem


@pytest.mark.parametrize(
    ("worker", "missing"),
    [
        (None, "offset.storage.topic, group.id"),
        ("group.id=connect\n", "offset.storage.topic"),
        ("offset.storage.topic=x\n", "group.id"),
    ],
)
def test_where_progress_is_has_to_be_known(problems, worker, missing):
    """Else all that the connectors have copied would be copied again, without a word."""
    (problem,) = problems(ALL, worker=worker)
    assert problem.startswith(f"{missing}: is not known")
    assert "connect-distributed.properties beside the file" in problem


def test_an_offsets_topic_of_the_connectors_own_counts(read):
    config = {**SOURCE, "offsets.storage.topic": "mine"}
    (link,) = read(posted("copy", config), worker="group.id=connect\n").links
    assert link.take_over.offsets_topic == "mine"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (posted("copy", {**SOURCE, "topcis": "x"}), "topcis of copy: is no setting of MirrorMaker 2; did"),
        ([posted("copy", SOURCE), posted("marks", {**CHECKPOINT, "topcis": "x"})], "topcis of marks: is"),
        (posted("copy", {**SOURCE, "topics": ["a"]}), "line 12: topics of copy: has to be a text"),
        (SOURCE, "name: is missing"),
        (posted("copy", {"connector.class": "MirrorSourceConnector"}), "has no source.cluster.alias"),
        (posted("copy", {**SOURCE, "transforms": "a"}), "transforms of copy: names Java classes"),
        ([posted("a", SOURCE), posted("b", SOURCE)], ": b: is a second MirrorSourceConnector of east->west"),
        ([posted("copy", SOURCE), posted("copy", CHECKPOINT)], "copy stands in the file twice"),
        (posted("marks", CHECKPOINT), "marks: there is no MirrorSourceConnector of east->west in the file"),
        ([posted("copy", without("target.cluster.alias")), posted("marks", CHECKPOINT)],
         "there is no MirrorSourceConnector of east->west in the file, only of east->target (copy)"),
        (["mirror"], "no connector of MirrorMaker 2 is in the file"),
        ("<html>", "line 1: is no JSON"),
        ("", "no connector of MirrorMaker 2 is in the file"),
        ('{"name": "x",\n "config": {,}}', "line 2: is no JSON"),
        (posted("copy", without("target.cluster.bootstrap.servers")), "has no target.cluster.bootstrap"),
        (posted("copy", {**SOURCE, "source.cluster.security.protocol": "SSLL"}),
         "source.cluster.security.protocol of copy: SSLL is not among"),
        (posted("copy", {**SOURCE, "source.cluster.alias": "e.ast"}), "source.cluster.alias of copy: alias"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_as_the_file_calls_it(problems, text, expected):
    found = problems(text)
    assert any(expected in problem for problem in found), found
    assert "hunter2" not in str(found)


@pytest.mark.parametrize("odd", [None, [], [1], {}, {"a": 1}, 5, "", "a->b"], ids=repr)
def test_whatever_stands_anywhere_is_a_link_or_a_problem(read, odd):
    for at in (0, 1):
        for name in (*ALL[at], *ALL[at]["config"]):
            changed = json.loads(json.dumps(ALL))
            (changed[at] if name in changed[at] else changed[at]["config"])[name] = odd
            with contextlib.suppress(MirrorMakerFileError):
                assert read(changed).links
