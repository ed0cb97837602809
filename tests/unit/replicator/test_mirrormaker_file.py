"""MM2 properties files: levels, meanings, what has none, what is wrong, providers."""

import pytest

from protocol.client.properties import client_security
from protocol.client.security import SaslBearer
from protocol.properties_text import PropertiesError, parse_properties
from replicator.mirrormaker.file import is_mirrormaker_text, parse_mirrormaker, read_mirrormaker_file
from replicator.mirrormaker.remarks import MirrorMakerFileError

TWO = """
clusters = A, B
A.bootstrap.servers = a1:9092, a2:9092
B.bootstrap.servers = b1:9092
A->B.enabled = true
"""


def only(text):
    (link,) = parse_mirrormaker(TWO + text).links
    return link


def problems(text):
    with pytest.raises(MirrorMakerFileError) as raised:
        parse_mirrormaker(text)
    return [str(problem) for problem in raised.value.problems]


def remarks(text):
    return [(remark.setting, remark.text) for remark in parse_mirrormaker(TWO + text).remarks]


def test_the_smallest_file_is_one_link_with_mirrormakers_switches():
    link = only("")
    assert (link.name, link.source.bootstrap, link.target.bootstrap) == (
        "A->B",
        "a1:9092, a2:9092",
        "b1:9092",
    )
    assert (link.naming, link.separator, link.sync_group_offsets, link.replication_factor) == (
        *("prefix", "."),
        *(False, 2),
    )
    assert link.refresh_topics_interval_s <= 2
    assert link.take_over.offsets_topic == "mm2-offsets.A.internal"
    assert link.take_over.group == "A-mm2"


def test_settings_of_a_flow_count_before_those_for_all():
    link = only(
        """
        topics = a, b
        A->B.topics = c.*
        topics.exclude = x
        A->B.emit.checkpoints.interval.seconds = 5
        emit.checkpoints.interval.seconds = 7
        refresh.topics.enabled = false
        replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
        replication.policy.separator = _
        replication.policy.internal.topic.separator.enabled = false
        offset-syncs.topic.location = target
        offset-syncs.topic.replication.factor = 1
        offset.storage.replication.factor = 1
        use.defaults.from = source
        """
    )
    assert link.topics == ("c.*",)
    assert link.topics_exclude == ("x",)
    assert link.emit_checkpoints_interval_s == 5
    assert (link.refresh_topics, link.naming, link.separator, link.internal_separator) == (
        *(False, "identity"),
        *("_", False),
    )
    assert (link.offset_syncs_topic_location, link.offset_syncs_topic_replication_factor) == ("target", 1)
    assert (link.internal_replication_factor, link.use_defaults_from) == (1, "source")


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("refresh.topics", "refresh_topics"),
        ("sync.topic.configs", "sync_topic_configs"),
        ("sync.topic.acls", "sync_topic_acls"),
        ("sync.group.offsets", "sync_group_offsets"),
        ("emit.checkpoints", "emit_checkpoints"),
        ("emit.heartbeats", "emit_heartbeats"),
    ],
)
def test_a_negative_interval_is_off_as_in_mirrormaker(setting, field):
    on = f"{setting}.enabled = true\n"
    assert getattr(only(on), field)
    assert not getattr(only(f"{on}{setting}.interval.seconds = -1\n"), field)
    assert getattr(only(f"{on}{setting}.interval.seconds = -1\nA->B.{setting}.interval.seconds = 5\n"), field)


def test_every_direction_that_is_switched_on_is_a_link():
    text = """
    clusters = A, B, C
    A.bootstrap.servers = a:1
    B.bootstrap.servers = b:1
    C.bootstrap.servers = c:1
    A->B.enabled = true
    B->A.enabled = TRUE
    B->C.enabled = false
    C->A.topics = x
    """
    assert [link.name for link in parse_mirrormaker(text).links] == ["A->B", "B->A"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("enabled = true", ["A->B", "B->A"]),
        ("enabled = true\nB->A.enabled = false", ["A->B"]),
        ("enabled = true\nemit.heartbeats.enabled = false", ["A->B"]),
        (
            "enabled = true\nemit.heartbeats.enabled = false\nB->A.emit.heartbeats.enabled = true",
            ["A->B", "B->A"],
        ),
        ("enabled = false", ["A->B"]),
    ],
)
def test_enabled_for_all_counts_where_mirrormaker_runs_a_herder(lines, expected):
    """Found by trying: it runs one for each direction with heartbeats, which takes what holds for all."""
    assert [link.name for link in parse_mirrormaker(TWO + lines).links] == expected


def test_backslashes_are_javas_not_pythons():
    assert only(r"topics = a\\.b, c\.d").topics == (r"a\.b", "c.d")
    (long,) = parse_properties("name = one,\\\n   two\n")
    assert long.text == "one,two"
    assert [item.name for item in parse_properties("a\\:b:c\n! no\n# no\n\n")] == ["a:b"]
    with pytest.raises(PropertiesError, match=r"mm2:2: \\u"):
        parse_properties("a=b\nc=\\u00g0", "mm2")


def test_lines_end_where_javas_do(tmp_path):
    file = tmp_path / "mm2.properties"
    comment = "# хорошо, Å, vertical\vtab, form\ffeed, \x1c \u2028\r"
    file.write_bytes((comment + TWO.replace("\n", "\r\n") + "topics = a\fb, \x85\\\r\n  c").encode())
    assert read_mirrormaker_file(file).links[0].topics == ("a\fb", "Â\x85c")


def test_a_byte_order_mark_is_named_and_not_taken_for_a_part_of_a_name(tmp_path):
    """It was: 'clusters is missing', and each other line unknown."""
    file = tmp_path / "mm2.properties"
    file.write_text(TWO.lstrip(), encoding="utf-8-sig")
    with pytest.raises(MirrorMakerFileError) as raised:
        read_mirrormaker_file(file)
    (problem,) = raised.value.problems
    assert "begins with a byte order mark" in str(problem)
    with pytest.raises(PropertiesError, match="save it without"):
        parse_properties("\ufeffa = b")


def test_clients_settings_find_their_end_and_the_most_special_counts():
    link = only(
        """
        consumer.auto.offset.reset = earliest
        A.consumer.auto.offset.reset = latest
        B.consumer.auto.offset.reset = earliest
        A->B.source.consumer.fetch.max.bytes = 9000000
        A->B.producer.max.request.size = 2000000
        """
    )
    assert link.start == "latest"
    assert (link.flow.fetch_max_bytes, link.flow.produce_request_bytes) == (9_000_000, 2_000_000)


def test_security_of_each_cluster_is_its_own_and_never_shown(tmp_path, monkeypatch):
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("password = hunter2\n")
    monkeypatch.setenv("MM2_USER", "alice")
    link = only(
        f"""
        config.providers = file, env
        config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider
        config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider
        security.protocol = SASL_PLAINTEXT
        sasl.mechanism = SCRAM-SHA-512
        A.sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required \\
            username="${{env:MM2_USER}}" password="${{file:{secrets}:password}}";
        B.security.protocol = PLAINTEXT
        """
    )
    assert link.source.properties["security.protocol"] == "SASL_PLAINTEXT"
    assert 'username="alice" password="hunter2"' in link.source.properties["sasl.jaas.config"]
    assert link.target.properties["security.protocol"] == "PLAINTEXT"
    assert "hunter2" not in repr(link)


def test_tokens_at_both_clusters_are_taken_as_the_file_has_them():
    """As MirrorMaker 2's users have them: Kafka's own handler at one side, Strimzi's at the other."""
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    lines = f"""
A.security.protocol = SASL_PLAINTEXT
A.sasl.mechanism = OAUTHBEARER
A.sasl.login.callback.handler.class = \\
  org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler
A.sasl.oauthbearer.token.endpoint.url = https://idp/token
A.sasl.oauthbearer.sub.claim.name = client
A.sasl.jaas.config = {module} clientId="a" clientSecret="hunter2" extension_logicalCluster="lkc-1";
B.security.protocol = SASL_PLAINTEXT
B.sasl.mechanism = OAUTHBEARER
B.sasl.login.callback.handler.class = io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler
B.sasl.jaas.config = {module} oauth.client.id="b" oauth.client.secret="hunter2" \\
  oauth.token.endpoint.uri="http://other/token" oauth.ssl.truststore.type="PKCS12" ;
"""
    found = parse_mirrormaker(TWO + lines)
    [link] = found.links
    source, target = (client_security(end.properties).sasl for end in (link.source, link.target))
    assert isinstance(source, SaslBearer)
    assert isinstance(target, SaslBearer)
    assert (source.tokens.place, source.extensions) == ("https://idp/token", (("logicalCluster", "lkc-1"),))
    assert target.tokens.place == "http://other/token"
    said = [str(remark) for remark in found.remarks if "sasl" in str(remark)]
    assert ["sub.claim.name" in text for text in said] == [True]
    assert "hunter2" not in repr((found, source, target))


@pytest.mark.parametrize(
    ("limit", "reference", "problem"),
    [
        ("file.param.allowed.paths = {here}/open, {here}/other", "file:{here}/open/a:k", ""),
        ("file.param.allowed.paths = {here}/open", "file:{here}/open/../shut/a:k", "outside of"),
        ("file.param.allowed.paths = {here}/op", "file:{here}/open/a:k", "outside of"),
        ("directory.param.allowed.paths = {here}/open", "directory:{here}/shut:a", "outside of"),
        ("env.param.allowlist.pattern = MM2_.*", "env:MM2_USER", ""),
        ("env.param.allowlist.pattern = MM2_.*", "env:HOME", "HOME is not among"),
        ("env.param.allowlist.pattern = (", "env:MM2_USER", "is no pattern"),
    ],
)
def test_providers_read_what_they_may(tmp_path, monkeypatch, limit, reference, problem):
    for folder in ("open", "shut"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a").write_text("k = alice\n")
    monkeypatch.setenv("MM2_USER", "alice")
    java = "org.apache.kafka.common.config.provider"
    text = f"""
        config.providers = file, env, directory
        config.providers.file.class = {java}.FileConfigProvider
        config.providers.env.class = {java}.EnvVarConfigProvider
        config.providers.directory.class = {java}.DirectoryConfigProvider
        config.providers.{limit.format(here=tmp_path)}
        A.ssl.key.password = ${{{reference.format(here=tmp_path)}}}
        """
    if problem:
        with pytest.raises(MirrorMakerFileError, match=problem):
            only(text)
    else:
        assert only(text).source.properties["ssl.key.password"] == "alice"


def taken(text):
    link = only(text)
    assert link.take_over is not None
    return (link.take_over.offsets_topic, link.take_over.group, link.take_over.connector)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("B.group.id = mine", ("mm2-offsets.A.internal", "mine", "MirrorSourceConnector")),
        ("group.id = mine", None),
        ("A->B.group.id = mine", None),
        ("A.group.id = mine", None),
        ("B.offset.storage.topic = mine", ("mine", "A-mm2", "MirrorSourceConnector")),
        (
            "offset.storage.topic = first\nB.offset.storage.topic = mine",
            ("first", "A-mm2", "MirrorSourceConnector"),
        ),
        ("A->B.offset.storage.topic = mine", None),
        ("A->B.offsets.storage.topic = mine", ("mine", "A-mm2", "MirrorSourceConnector")),
        ("B.offsets.storage.topic = mine\noffsets.storage.topic = mine", None),
        ("name = first\nA->B.name = mine", ("mm2-offsets.A.internal", "A-mm2", "mine")),
        ("name = mine", ("mm2-offsets.A.internal", "A-mm2", "mine")),
        ("B.name = mine", None),
    ],
)
def test_what_is_taken_over_is_where_mirrormaker_takes_it_from(text, expected):
    """As MirrorMakerConfig of Kafka 4.3.1 says (workerConfig, connectorBaseConfig): elsewhere is nothing to
    take over, and what there is would be copied again."""
    assert taken(text) == (expected or ("mm2-offsets.A.internal", "A-mm2", "MirrorSourceConnector"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 25),
        ("offset.storage.partitions = 3\nB.offset.storage.partitions = 4", 3),
        ("B.offset.storage.partitions = -1", -1),
        ("A->B.offset.storage.partitions = 3", 25),
    ],
)
def test_the_topic_of_its_progress_would_be_made_as_connect_makes_it(text, expected):
    assert only(text).take_over.partitions == expected


def test_a_wrong_number_of_partitions_is_named_with_its_line():
    (problem,) = problems(f"{TWO}offset.storage.partitions = 0")
    assert "'0' is neither -1 nor at least 1" in problem


def test_connectors_of_connect_written_as_their_refusal_says():
    """`isthmus.link_files` says how; what `A->B.` may stand before, names of both connectors among it."""
    (link,) = parse_mirrormaker(
        """
        clusters = A, B
        A->B.enabled = true
        A->B.name = mirror
        A->B.connector.class = org.apache.kafka.connect.mirror.MirrorSourceConnector
        A->B.source.cluster.alias = A
        A->B.source.cluster.bootstrap.servers = a:1
        A->B.target.cluster.bootstrap.servers = b:1
        A->B.target.cluster.security.protocol = SSL
        A->B.tasks.max = 3
        A->B.sync.group.offsets.enabled = true
        B.offset.storage.topic = connect-offsets
        """
    ).links
    assert (link.source.bootstrap, link.target.bootstrap, link.sync_group_offsets) == ("a:1", "b:1", True)
    assert link.target.properties == {"security.protocol": "SSL"}
    assert (link.take_over.offsets_topic, link.take_over.connector) == ("connect-offsets", "mirror")


@pytest.mark.parametrize("line", ["group.id = x", "A->B.offset.storage.topic = x", "B.name = x"])
def test_what_mirrormaker_does_not_take_there_is_said(line):
    assert [text for _, text in remarks(line)] == ["has no effect here, in MirrorMaker 2 neither: remove it"]


def test_exactly_once_is_of_the_target_cluster():
    assert only("B.exactly.once.source.support = enabled").exactly_once
    assert not only("B.exactly.once.source.support = preparing").exactly_once
    assert not only("A.exactly.once.source.support = enabled").exactly_once
    assert remarks("B.exactly.once.source.support = enabled") == []


def test_clients_are_told_by_cluster_or_flow():
    """For all, MirrorMaker 2 hands them to no client: it copies from the earliest record."""
    assert only("consumer.auto.offset.reset = latest").start == "earliest"
    ((_, text),) = remarks("consumer.auto.offset.reset = latest")
    assert text.endswith("write CLUSTER.consumer.auto.offset.reset")
    for line in ("A.consumer", "A->B.consumer", "A->B.source.consumer"):
        assert only(f"{line}.auto.offset.reset = latest").start == "latest"


def test_names_at_the_target_are_not_settings_of_a_cluster():
    """MirrorMaker 2 gives them to no connector: topics keep the names that they have."""
    link = only("B.replication.policy.class = IdentityReplicationPolicy\nB.replication.policy.separator = _")
    assert (link.naming, link.separator) == ("prefix", ".")
    ((setting, text),) = remarks("B.replication.policy.separator = _")
    assert setting == "B.replication.policy.separator"
    assert "has no effect for a cluster" in text


def test_what_has_no_meaning_is_said_with_what_to_do():
    said = dict(
        remarks(
            """
            tasks.max = 8
            offset.lag.max = 1000
            producer.linger.ms = 100
            A->B.consumer.isolation.level = read_uncommitted
            dedicated.mode.enable.internal.rest = true
            B.replication.factor = 3
            topics.blacklist = x
            exactly.once.source.support = disabled
            """
        )
    )
    assert "share its partitions" in said["tasks.max"]
    assert "no lag to allow" in said["offset.lag.max"]
    assert "what is committed" in said["A->B.consumer.isolation.level"]
    assert "write it as replication.factor" in said["B.replication.factor"]
    assert "topics.exclude" in said["topics.blacklist"]
    assert len(said) == 7


@pytest.mark.parametrize(
    "line",
    [
        "metric.names.formats = legacy",
        "A->B.errors.tolerance = all",
        "topic.creation.default.partitions = 3",
        "B.inter.worker.key.ttl.ms = 1",
        "A->B.transforms =",
        "A->B.transforms.mine.type = org.example.Mine",
        "A->B.producer.override.linger.ms = 100",
        "connector.client.config.override.policy = All",
        "consumer.share.acquire.mode = BATCH_OPTIMIZED",
        "B.access.control.allow.origin = *",
        "rest.port = 8083",
        "internal.key.converter.schemas.enable = false",
        "A.ssl.cipher.suites = TLS_AES_128_GCM_SHA256",
    ],
)
def test_whatever_mirrormaker_and_its_connect_know_is_no_mistake(line):
    assert [name for name, _ in remarks(line)] == [line.partition(" ")[0]]


def test_a_connectors_own_settings_of_clients_count():
    link = only("A->B.producer.override.max.request.size = 3000000")
    assert link.flow.produce_request_bytes == 3_000_000


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("A->B.topcis = x", "line 6: A->B.topcis: is no setting of MirrorMaker 2; did you mean 'topics'?"),
        ("A->C.enabled = true", "line 6: A->C.enabled: C is not in clusters"),
        ("emit.heartbeats.enabled = yes", "'yes' is neither true nor false"),
        ("replication.factor = many", "'many' is not a whole number"),
        (
            "A.bootstrap.servers = a1",
            "line 6: A.bootstrap.servers: bootstrap address 'a1' is not of the form",
        ),
        ("topics = (", "is not a regular expression"),
        ("replication.policy.class = org.example.Mine", "is a Java class, which cannot run here"),
        ("A->B.topic.filter.class = org.example.Mine", "remove the line to take DefaultTopicFilter"),
        ("exactly.once.source.support = yes", "'yes' is neither disabled nor preparing nor enabled"),
        ("A.security.protocol = SSLL", "security.protocol: SSLL is not among"),
        (
            "A.security.protocol = SSL\nA.ssl.truststore.location = a.jks",
            "line 7: A.ssl.truststore.location: a.jks: No such file",
        ),
        (
            "A.ssl.trustore.location = a.jks",
            "line 6: A.ssl.trustore.location: is no setting of Kafka's clients; did",
        ),
        (
            "A.security.protocol = SASL_SSL\nA.sasl.mechanism = GSSAPI\nA.sasl.jaas.config = x y;",
            "line 7: A.sasl.mechanism: GSSAPI is not offered",
        ),
        ("A.sasl.jaas.config = ${env:NOT_SET_ANYWHERE}", "NOT_SET_ANYWHERE is not set"),
        ("A.consumer.auto.offset.reset = none", "neither earliest nor latest"),
        ("A->B.transforms = mine", "line 6: A->B.transforms: names Java classes, which cannot run here"),
        ("B->B.enabled = true", "copies a cluster into itself"),
        ("config.providers = vault", "config.providers.vault.class is not set"),
        (
            "emit.checkpoints.interval.seconds = 0",
            "emit.checkpoints.interval.seconds: has to be more than 0 (found: 0.0)",
        ),
        ("offset-syncs.topic.location = nowhere", "has to be 'source' or 'target' (found: 'nowhere')"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(line, expected):
    found = problems(TWO + line)
    assert any(expected in problem for problem in found), found


def test_a_value_that_cannot_be_read_hides_no_other_problem():
    found = problems(
        TWO
        + "A->B.emit.heartbeats.enabled = maybe\nA->B.topics = (\nA->B.refresh.topics.interval.seconds = 0\n"
        "A->B.consumer.fetch.max.bytes = 3\nA.bootstrap.servers = a\n"
    )
    assert len(found) == 5
    assert any("has to be at least 65536 (found: 3)" in problem for problem in found)


def test_all_problems_come_at_once_and_no_secret_with_them():
    found = problems(
        """
        clusters = A, B
        A.bootstrap.servers = a:1
        A->B.enabled = true
        A.security.protocol = SASL_PLAINTEXT
        A.sasl.mechanism = PLAIN
        A.sasl.jaas.config = PlainLoginModule required username=u password=hunter2
        tpoics = x
        """
    )
    assert any("B.bootstrap.servers: is missing" in problem for problem in found)
    assert any("tpoics" in problem for problem in found)
    assert "hunter2" not in str(found)


def test_a_file_without_links_says_how_to_have_one():
    assert "A->B.enabled = true" in problems("clusters = A, B\nA.bootstrap.servers=a:1")[0]
    assert "clusters: is missing" in problems("a = b")[0]
    assert is_mirrormaker_text(TWO)
    assert not is_mirrormaker_text("version: 1\nclusters:\n  a: {}\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("clusters: A B", "line 1: clusters: alias 'A B' may hold letters, digits, '-' and '_' only; aliases"
         " stand with commas between them"),
        ("clusters = A, us.east",
         "line 1: clusters: alias 'us.east' may hold letters, digits, '-' and '_' only"),
    ],
)  # fmt: skip
def test_an_alias_that_cannot_be_one_is_the_only_problem(line, said):
    """Found by trying: each line of the cluster was no setting, with itself as what was perhaps meant."""
    assert problems(f"{line}\nA.bootstrap.servers = a:1\nus.east.bootstrap.servers = b:1\n") == [said]


@pytest.mark.parametrize("name", ["A -> B", "A-> B", "A ->B"])
def test_a_space_beside_an_arrow_is_named_at_each_line(name):
    text = f"{TWO}{name}.topics = x\n{name}.groups = y"
    assert [one.partition(": a name ends at its first space")[0][:6] for one in problems(text)] == [
        "line 6",
        "line 7",
    ]
