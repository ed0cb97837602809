"""Strimzi's KafkaMirrorMaker2 in both versions of its API: links, how clusters let in, what is wrong."""

import base64
import json

import pytest

from protocol.client.properties import client_security
from protocol.client.security import SaslBearer, SaslScram
from protocol.yaml_text import parse_yaml, plain
from replicator.mirrormaker.forms import is_mirrormaker_file, read_links
from replicator.mirrormaker.remarks import MirrorMakerFileError
from tests.support.certificates import Authority

V1 = """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
metadata: {name: move, namespace: data}
spec:
  version: 4.1.0
  replicas: 2
  target:
    alias: west
    bootstrapServers: west-bootstrap:9092
    groupId: move-group
    configStorageTopic: __move-config
    offsetStorageTopic: __move-offset
    statusStorageTopic: __move-status
    config:
      config.storage.replication.factor: -1
      offset.storage.replication.factor: -1
      status.storage.replication.factor: -1
  mirrors:
  - source:
      alias: east
      bootstrapServers: east-bootstrap:9092
    sourceConnector:
      tasksMax: 4
      config:
        replication.factor: -1
        offset-syncs.topic.location: target
        sync.topic.acls.enabled: "false"
        refresh.topics.interval.seconds: 30
        producer.override.max.request.size: 3000000
        consumer.fetch.max.bytes: 9000000
    checkpointConnector:
      tasksMax: 1
      config:
        offset-syncs.topic.location: target
        sync.group.offsets.enabled: true
        emit.checkpoints.interval.seconds: 15
    topicsPattern: "orders|pay.*"
    topicsExcludePattern: .*-dlq
    groupsPattern: shop-.*
"""
BETA = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {name: move}
spec:
  replicas: 1
  connectCluster: west
  clusters:
  - {alias: east, bootstrapServers: "e:9092"}
  - {alias: north, bootstrapServers: "n:9092"}
  - alias: west
    bootstrapServers: w:9092
    config: {config.storage.replication.factor: 1}
  mirrors:
  - {sourceCluster: east, targetCluster: west, sourceConnector: {}, checkpointConnector: {},
     heartbeatConnector: {config: {heartbeats.topic.replication.factor: 1}},
     topicsPattern: a, topicsBlacklistPattern: b, groupsBlacklistPattern: c}
  - sourceCluster: north
    targetCluster: west
    sourceConnector:
      state: stopped
"""


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.delenv("ISTHMUS_SECRETS", raising=False)

    def parsed(text):
        file = tmp_path / "mm2.yaml"
        file.write_text(text)
        assert is_mirrormaker_file(file)
        return read_links(file)

    return parsed


@pytest.fixture
def problems(read):
    def found(text):
        with pytest.raises(MirrorMakerFileError) as raised:
            read(text)
        return [str(problem) for problem in raised.value.problems]

    return found


def test_the_newer_api(read):
    found = read(V1)
    (link,) = found.links
    assert (link.name, link.source.bootstrap, link.target.bootstrap) == (
        *("east->west", "east-bootstrap:9092"),
        "west-bootstrap:9092",
    )
    assert link.topics == ("orders|pay.*",)
    assert (link.topics_exclude, link.groups) == ((".*-dlq",), ("shop-.*",))
    assert (link.sync_topic_acls, link.sync_group_offsets, link.emit_checkpoints) == (False, True, True)
    assert (link.emit_checkpoints_interval_s, link.refresh_topics_interval_s) == (15, 30)
    assert (link.offset_syncs_topic_location, link.replication_factor) == ("target", -1)
    assert (link.flow.produce_request_bytes, link.flow.fetch_max_bytes) == (3_000_000, 9_000_000)
    assert link.internal_replication_factor == -1
    assert not link.emit_heartbeats  # there is no such connector any more
    assert link.take_over.model_dump() == {
        "offsets_topic": "__move-offset",
        "connector": "east->west.MirrorSourceConnector",
        "group": "move-group",
        "status_topic": "__move-status",
        "partitions": 25,
    }
    said = {remark.setting: (remark.line, remark.text) for remark in found.remarks}
    assert said["spec.replicas"] == (
        6,
        "has no meaning here: start as many processes with this file as there should be",
    )
    assert said["spec.mirrors.0.sourceConnector.tasksMax"][0] == 23


def test_the_older_api_with_its_own_names_of_topics_and_two_sources(read):
    found = read(BETA)
    one, two = found.links
    assert (one.name, one.topics, one.topics_exclude, one.groups_exclude) == (
        "east->west",
        ("a",),
        ("b",),
        ("c",),
    )
    assert (one.emit_heartbeats, one.emit_checkpoints, one.heartbeats_topic_replication_factor) == (
        True,
        True,
        1,
    )
    assert (two.name, two.emit_heartbeats, two.emit_checkpoints, two.sync_group_offsets) == (
        *("north->west", False),
        *(False, False),
    )
    for link in (one, two):
        assert (link.take_over.offsets_topic, link.take_over.group, link.take_over.status_topic) == (
            "mirrormaker2-cluster-offsets",
            "mirrormaker2-cluster",
            "mirrormaker2-cluster-status",
        )
    assert two.take_over.connector == "north->west.MirrorSourceConnector"
    said = [str(remark) for remark in found.remarks]
    assert any("north->west in the file: positions of groups are not translated" in text for text in said)
    assert any("spec.mirrors.1.sourceConnector.state: a link copies all the same" in text for text in said)


def test_the_connect_clusters_config_says_where_progress_is(read):
    text = BETA.replace(
        "{config.storage.replication.factor: 1}",
        "{group.id: mine, offset.storage.topic: my-offsets, status.storage.topic: my-status,"
        " exactly.once.source.support: enabled}",
    )
    link = read(text).links[0]
    assert (link.take_over.offsets_topic, link.take_over.group, link.take_over.status_topic) == (
        *("my-offsets", "mine"),
        "my-status",
    )
    assert link.exactly_once


def secret(name, **texts):
    data = "".join(
        f"  {key.replace('_', '.')}: {base64.b64encode(text.encode()).decode()}\n"
        for key, text in texts.items()
    )
    return f"---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\ndata:\n{data}"


TLS = """
    tls:
      trustedCertificates:
      - {secretName: west-ca, pattern: "*.crt"}
"""
SCRAM = """
    authentication:
      type: scram-sha-512
      username: mover
      passwordSecret: {secretName: mover, password: password}
"""


def with_target(text):
    return V1.replace("    groupId: move-group\n", f"    groupId: move-group{text.rstrip()}\n")


def test_secrets_beside_the_resource_open_the_clusters(read, tmp_path):
    authority = Authority(tmp_path, "west")
    password = 'qu"ote\\${env:HOME}'
    text = (
        with_target(TLS + SCRAM)
        + secret("west-ca", ca_crt=authority.certificate)
        + secret("mover", password=password)
    )
    found = read(text)
    properties = found.links[0].target.properties
    assert properties["security.protocol"] == "SASL_SSL"
    security = client_security(properties)
    assert security.sasl == SaslScram("mover", password, "SCRAM-SHA-512")
    assert len(security.ssl.get_ca_certs()) == 1
    assert found.links[0].source.properties == {"security.protocol": "PLAINTEXT"}
    assert password not in repr(found)


def test_a_secret_that_is_not_there_is_one_problem_each(problems):
    """And not that its reference is no certificate besides."""
    found = problems(with_target(TLS.replace('pattern: "*.crt"', "certificate: ca.crt") + SCRAM))
    told = sorted(text.partition(" is not there")[0].partition("key ")[2] for text in found)
    assert told == ["ca.crt of Secret west-ca", "password of Secret mover"]


@pytest.mark.parametrize("by_variable", [False, True])
def test_secrets_are_files_as_kubernetes_mounts_them(read, problems, tmp_path, monkeypatch, by_variable):
    folder = tmp_path / ("mounted" if by_variable else "secrets")
    if by_variable:
        monkeypatch.setenv("ISTHMUS_SECRETS", str(folder))
    text = with_target(SCRAM)
    (problem,) = problems(text)
    assert problem.startswith(
        "line 14: spec.target.authentication.passwordSecret: key password of Secret mover"
    )
    assert f"{folder}/mover/password: No such file" in problem
    assert "kubectl get secret mover -o yaml" in problem
    (folder / "mover").mkdir(parents=True)
    (folder / "mover" / "password").write_text("hunter2")
    assert read(text).links[0].target.properties["sasl.password"] == "hunter2"


def test_certificates_of_the_client_and_those_that_a_pattern_takes(read, tmp_path):
    ours, theirs = Authority(tmp_path / "ours", "ours"), Authority(tmp_path / "theirs", "theirs")
    chain = "-----BEGIN CERTIFICATE"
    key, _, certificate = ours.store("mover").read_text().partition(chain)
    mounted = tmp_path / "secrets"
    for name, files in {
        "west-ca": {"a.crt": ours.certificate, "b.crt": theirs.certificate, "ca.p12": ours.certificate},
        "mover": {"user.crt": chain + certificate, "user.key": key},
    }.items():
        (mounted / name / "..data").mkdir(parents=True)
        for key, file in files.items():
            (mounted / name / key).write_text(file)
    how = (
        "\n    authentication:\n      type: tls\n      certificateAndKey:"
        " {secretName: mover, certificate: user.crt, key: user.key}\n"
    )
    properties = read(with_target(TLS + how)).links[0].target.properties
    assert (properties["security.protocol"], properties["ssl.keystore.type"]) == ("SSL", "PEM")
    assert len(client_security(properties).ssl.get_ca_certs()) == 2


def test_tokens(read, tmp_path):
    oauth = """
    tls: {}
    authentication:
      type: oauth
      clientId: mover
      tokenEndpointUri: https://idp/token
      clientSecret: {secretName: idp, key: secret}
      tlsTrustedCertificates:
      - {secretName: idp, certificate: ca.crt}
      scope: kafka
      saslExtensions: {logicalCluster: lkc}
      maxTokenExpirySeconds: 60
"""
    authority = Authority(tmp_path, "idp")
    found = read(with_target(oauth) + secret("idp", secret="hunter2", ca_crt=authority.certificate))
    properties = found.links[0].target.properties
    security = client_security(properties)
    assert properties["security.protocol"] == "SASL_SSL"
    assert isinstance(security.sasl, SaslBearer)
    assert (security.sasl.tokens.place, security.sasl.extensions) == (
        "https://idp/token",
        (("logicalCluster", "lkc"),),
    )
    assert "hunter2" not in repr((found, security))


def test_a_custom_authentication_is_kafkas_settings(read):
    custom = """
    authentication:
      type: custom
      sasl: true
      config:
        sasl.mechanism: PLAIN
        sasl.jaas.config: a.PlainLoginModule required username="u" password="${strimzisecrets:data/u:p}";
        ssl.truststore.location: /x
"""
    found = read(with_target(custom) + secret("u", p="hunter2"))
    properties = found.links[0].target.properties
    assert (properties["security.protocol"], client_security(properties).sasl.password) == (
        "SASL_PLAINTEXT",
        "hunter2",
    )
    assert any("in Strimzi neither" in remark.text for remark in found.remarks)


def test_providers_that_the_resource_declares(read):
    text = V1.replace(
        "    config:\n      config.storage",
        "    config:\n      config.providers: mine\n"
        "      config.providers.mine.class: io.strimzi.kafka.KubernetesSecretConfigProvider\n"
        "      config.storage",
    ).replace('"orders|pay.*"', "${mine:data/names:topics}")
    assert read(text + secret("names", topics="a, b")).links[0].topics == ("a", "b")


def test_as_kubectl_lists_it_and_beside_other_objects(read, tmp_path):
    items = "\n".join("  " + line for line in V1.splitlines())
    listed = f"kind: List\nitems:\n- {items.lstrip()}\n  status: {{conditions: []}}\n- kind: Kafka\n"
    (link,) = read(listed).links
    assert link.name == "east->west"
    (link,) = read(f"kind: Kafka\nspec: {{kafka: 1}}\n---\n{V1}").links
    assert link.name == "east->west"
    file = tmp_path / "one.json"
    file.write_text(json.dumps(plain(parse_yaml(V1)[0]), indent=4))
    assert [link.name for link in read_links(file).links] == ["east->west"]


def test_two_resources_of_one_file_may_be_two_directions(read, problems):
    back = V1.replace("west", "WEST").replace("east", "west").replace("WEST", "east")
    assert {link.name for link in read(f"{V1}---\n{back}").links} == {"east->west", "west->east"}
    assert any("east->west stands in another" in text for text in problems(f"{V1}---\n{V1}"))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("topicsPattern", "topicPattern", "line 37: spec.mirrors.0.topicPattern: is no field of it; did"),
        ("strimzi.io/v1", "strimzi.io/v9", "apiVersion: 'kafka.strimzi.io/v9' is not known"),
        ("apiVersion: kafka.strimzi.io/v1\n", "", "apiVersion: is missing"),
        ("  replicas: 2", "  replica: 2", "spec.replica: is no field of it; did you mean 'replicas'?"),
        ("        replication.factor", "        replicaton.factor", "did you mean 'replication.factor'"),
        ('"orders|pay.*"', "[a, b]", "spec.mirrors.0.topicsPattern: has to be a text, a number"),
        ("true", "[true]", "sync.group.offsets.enabled: has to be a text, a number, true or false"),
        ("    alias: west\n", "", "line 7: spec.target.alias: is missing"),
        ("    groupId: move-group\n", "", "group.id: is not known"),
        ("alias: east", "alias: e.ast", "spec.mirrors.0.source.alias: alias 'e.ast' may hold letters"),
        ("  mirrors:", "  mirors:", "spec.mirors: is no field of it; did you mean 'mirrors'?"),
        ("    sourceConnector:", "    heartbeatConnector:", "is no MirrorSourceConnector of east->west"),
        ("east-bootstrap:9092", "east-bootstrap", "source.bootstrapServers: bootstrap address"),
        ("    checkpointConnector:", "    checkpointConnector: 5\n    x:", "has to be a mapping"),
        ("kind: KafkaMirrorMaker2\n", "kind: KafkaMirrorMaker2\n\tx: [", "not valid YAML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_where_it_stands(problems, old, new, expected):
    assert old in V1
    found = problems(V1.replace(old, new, 1))
    assert any(expected in text for text in found), found


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("connectCluster: west", "connectCluster: weste", "connectCluster has to name one of spec.clusters"),
        ("sourceCluster: north", "sourceCluster: nord", "spec.mirrors.1.sourceCluster: is no alias of"),
        ("sourceCluster: north", "sourceCluster: east", "is a second MirrorSourceConnector of east->west"),
    ],
)
def test_what_is_wrong_in_the_older_api(problems, old, new, expected):
    found = problems(BETA.replace(old, new, 1))
    assert any(expected in text for text in found), found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("type: kerberos", "authentication.type: is not among tls, plain, scram-sha-256"),
        ("type: plain\n      username: u", "authentication.passwordSecret: is missing"),
        (
            "type: plain\n      usernam: u",
            "authentication.usernam: is no field of it; did you mean 'username'?",
        ),
        ("type: tls", "authentication.certificateAndKey: is missing"),
    ],
)
def test_what_is_wrong_about_how_to_be_let_in(problems, text, expected):
    found = problems(with_target(f"\n    authentication:\n      {text}\n"))
    assert any(expected in problem for problem in found), found


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{type: plain, username: u}", "passwordSecret"),
        ("{type: scram-sha-512, passwordSecret: {secretName: s, password: p}}", "username"),
        ("{type: scram-sha-256, username: u, passwordSecret: {secretName: s}}", "passwordSecret.password"),
        ("{type: tls, certificateAndKey: {secretName: s, certificate: c}}", "certificateAndKey.key"),
        ("{type: oauth, clientId: c, clientSecret: {secretName: s}}", "clientSecret.key"),
        ("{type: oauth, accessToken: {key: k}}", "accessToken.secretName"),
    ],
)
def test_what_is_missing_to_be_let_in_is_one_problem(problems, text, place):
    """And not that Kafka's client could not connect so besides, at another place."""
    found = problems(with_target(f"\n    authentication: {text}\n"))
    assert [one.partition("authentication.")[2] for one in found] == [f"{place}: is missing"], found


def test_a_custom_authentication_with_a_wrong_value_is_one_problem(problems):
    found = problems(
        with_target("\n    authentication: {type: custom, sasl: true, config: {sasl.mechanism: [x]}}\n")
    )
    assert ["config.sasl.mechanism: has to be a text" in one for one in found] == [True], found


def test_settings_of_a_worker_at_a_source_have_no_effect(read):
    text = V1.replace(
        "      bootstrapServers: east-bootstrap:9092\n",
        "      bootstrapServers: east-bootstrap:9092\n      config:\n"
        "        offset.storage.replication.factor: 1\n"
        "        consumer.auto.offset.reset: latest\n        ssl.endpoint.identification.algorithm: ''\n",
    )
    found = read(text)
    assert found.links[0].start == "earliest"
    assert found.links[0].internal_replication_factor == -1
    assert found.links[0].source.properties["ssl.endpoint.identification.algorithm"] == ""
    assert sum("belongs into sourceConnector.config" in remark.text for remark in found.remarks) == 2


def places(node, at=()):
    yield at
    for key, value in (
        node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    ):
        yield from places(value, (*at, key))


@pytest.mark.parametrize("odd", [None, [], [1], {}, {"a": 1}, 5, "", "a->b"], ids=repr)
def test_whatever_stands_anywhere_is_a_link_or_a_problem(tmp_path, odd):
    document = plain(parse_yaml(with_target(SCRAM) + secret("mover", password="x"))[0])
    for *above, last in filter(None, places(document)):
        changed = json.loads(json.dumps(document))
        node = changed
        for key in above:
            node = node[key]
        node[last] = odd
        file = tmp_path / "mm2.yaml"
        file.write_text(json.dumps({"kind": "List", "items": [changed, {"kind": "KafkaMirrorMaker2"}]}))
        with pytest.raises(MirrorMakerFileError):  # of the second one, at least
            read_links(file)
