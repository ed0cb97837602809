"""ACLs over a link between two Apache Kafka clusters with an authorizer: granted, withheld, revoked.

confluent-kafka's AdminClient makes the source's ACLs and reads the target's.
"""

import asyncio
import contextlib
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from protocol.client import ClusterClient
from replicator.acl_report import acl_report
from replicator.preflight import Level, check_link
from replicator.progress import ProgressStore
from replicator.writers import grant_writers, revoke_writers
from tests.cluster.links import Pair, copied_to, create, eventually, fresh, produce, running, some
from tests.support.apache_kafka import apache_kafka, kafka_script

pytestmark = [pytest.mark.interop, pytest.mark.slow]

_AUTHORIZER = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
)


@pytest.fixture(scope="module")
def pair():
    with ThreadPoolExecutor(2) as side_by_side, contextlib.ExitStack() as stack:
        clusters = [apache_kafka(name, *_AUTHORIZER) for name in ("acl-east", "acl-west")]
        yield Pair("apache", *side_by_side.map(stack.enter_context, clusters))


class Acls:
    """ACLs of one cluster as (kind, pattern, name, principal, operation, permission)."""

    def __init__(self, bootstrap):
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    async def add(self, *rows):
        made = self._admin.create_acls([_binding(row) for row in rows], request_timeout=30)
        await asyncio.gather(*map(asyncio.wrap_future, made.values()))

    async def remove(self, *rows):
        gone = self._admin.delete_acls([_filter(row) for row in rows], request_timeout=30)
        found = await asyncio.gather(*map(asyncio.wrap_future, gone.values()))
        assert all(len(matches) == 1 for matches in found)

    async def about(self, tag):
        """Those whose resource's name holds `tag`."""
        every = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        found = await asyncio.wrap_future(self._admin.describe_acls(every, request_timeout=30))
        return {_row(acl) for acl in found if tag in acl.name}


def _binding(row):
    kind, pattern, name, who, operation, permission = row
    return AclBinding(
        ResourceType[kind],
        name,
        ResourcePatternType[pattern],
        f"User:{who}",
        "*",
        AclOperation[operation],
        AclPermissionType[permission],
    )


def _filter(row):
    acl = _binding(row)
    return AclBindingFilter(
        acl.restype,
        acl.name,
        acl.resource_pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def _row(acl):
    return (
        acl.restype.name,
        acl.resource_pattern_type.name,
        acl.name,
        acl.principal.removeprefix("User:"),
        acl.operation.name,
        acl.permission_type.name,
    )


async def test_acls_come_along_without_write_and_go_when_they_are_revoked(pair):
    tag = fresh("granted")
    topic, other, group = f"{tag}-orders", f"other-{tag}", f"{tag}-readers"
    east, west = Acls(pair.east), Acls(pair.west)
    link = pair.link(f"{tag}.*", sync_topic_acls_interval_s=0.3)
    there = f"{link.source.alias}.{topic}"
    prefix = f"{link.source.alias}.{tag}"
    foreign = ("TOPIC", "LITERAL", there, "carl", "READ", "ALLOW")
    await west.add(foreign)
    await east.add(
        ("TOPIC", "LITERAL", topic, "ann", "READ", "ALLOW"),
        ("TOPIC", "LITERAL", topic, "bob", "WRITE", "ALLOW"),
        ("TOPIC", "LITERAL", topic, "carl", "READ", "ALLOW"),
        ("TOPIC", "LITERAL", topic, "dan", "ALL", "ALLOW"),
        ("TOPIC", "LITERAL", topic, "eve", "ALL", "DENY"),
        ("TOPIC", "PREFIXED", tag, "fay", "ALL", "ALLOW"),
        ("TOPIC", "LITERAL", other, "ann", "READ", "ALLOW"),
        ("GROUP", "LITERAL", group, "ann", "READ", "ALLOW"),
        ("GROUP", "PREFIXED", tag, "fay", "READ", "ALLOW"),
    )
    async with ClusterClient(pair.east) as client:
        await create(client, topic)
        await create(client, other)
        await produce(client, topic, some(3))
    expected = {
        foreign,
        ("TOPIC", "LITERAL", there, "ann", "READ", "ALLOW"),
        ("TOPIC", "LITERAL", there, "dan", "READ", "ALLOW"),
        ("TOPIC", "LITERAL", there, "eve", "ALL", "DENY"),
        ("TOPIC", "PREFIXED", prefix, "fay", "READ", "ALLOW"),
        ("GROUP", "LITERAL", group, "ann", "READ", "ALLOW"),
        ("GROUP", "PREFIXED", tag, "fay", "READ", "ALLOW"),
    }

    async def hold(rows):
        async def same():
            return await west.about(tag) == rows

        try:
            await eventually(same, "the ACLs of the target", 60)
        except AssertionError:
            assert await west.about(tag) == rows
            raise

    async with running(link) as run:
        await hold(expected)
        assert run.status.to_json()["acls"]["reason"] is None
    ann = ("TOPIC", "LITERAL", topic, "ann", "READ", "ALLOW")
    carl = ("TOPIC", "LITERAL", topic, "carl", "READ", "ALLOW")
    await east.remove(ann, carl)  # while the link is down: it knows what it had granted
    expected.remove(("TOPIC", "LITERAL", there, "ann", "READ", "ALLOW"))
    async with running(link):
        await hold(expected)  # carl's was granted by somebody else


async def test_more_than_may_go_at_once_is_held_back_and_said_until_it_is_allowed(pair):
    tag = fresh("held")
    link = pair.link(f"{tag}.*", sync_topic_acls_interval_s=0.3, acls_revoke_at_most=1)
    rows = [("TOPIC", "LITERAL", tag, who, "READ", "ALLOW") for who in ("ann", "bob")]
    there = {(kind, pattern, f"{link.source.alias}.{name}", *rest) for kind, pattern, name, *rest in rows}
    east, west = Acls(pair.east), Acls(pair.west)
    await east.add(*rows)
    async with ClusterClient(pair.east) as client:
        await create(client, tag)
    own = f"{link.source.alias}.{tag}"

    async def both():
        return await west.about(own) == there

    async def neither():
        return await west.about(own) == set()

    async with running(link) as run:
        await eventually(both, "both are granted", 60)
        await east.remove(*rows)

        async def told():
            return "acls_revoke_at_most: 2" in (run.status.to_json()["acls"]["not_revoked_because"] or "")

        await eventually(told, "the status says why", 60)
    assert await both()
    async with running(link.model_copy(update={"acls_revoke_at_most": 2})):
        await eventually(neither, "both are revoked", 60)


async def test_a_link_that_only_reports_changes_nothing(pair):
    tag = fresh("reported")
    link = pair.link(f"{tag}.*", acls_report_only=True, sync_topic_acls_interval_s=0.3)
    await Acls(pair.east).add(
        ("TOPIC", "LITERAL", tag, "ann", "READ", "ALLOW"), ("TOPIC", "LITERAL", tag, "bob", "WRITE", "ALLOW")
    )
    async with ClusterClient(pair.east) as client:
        await create(client, tag)
    async with running(link) as run:

        async def told():
            return bool(run.status.to_json().get("acls", {}).get("to_grant"))

        await eventually(told, "a report", 60)
        report = run.status.to_json()["acls"]
    async with ClusterClient(pair.east) as source, ClusterClient(pair.west) as target:
        assert await acl_report(source, target, link) == report  # also from outside, while it is down
    assert report["to_grant"] == [f"ALLOW User:ann READ on LITERAL TOPIC {link.source.alias}.{tag}"]
    assert report["write_withheld"] == [f"ALLOW User:bob WRITE on LITERAL TOPIC {tag}"]
    assert report["reason"] == "report only: nothing is changed at the target"
    assert await Acls(pair.west).about(tag) == set()


async def test_without_an_authorizer_the_status_says_why_there_are_no_acls(pair, broker):
    link = Pair("mixed", pair.east, broker.bootstrap).link(fresh("open"), sync_topic_acls_interval_s=0.3)
    async with running(link) as run:

        async def told():
            acls = run.status.to_json().get("acls", {})
            return acls.get("reason") == "the target cluster has no authorizer"

        await eventually(told, "the reason", 60)


@pytest.mark.skipif(os.environ.get("ISTHMUS_SLOW") != "1", reason="a third Apache Kafka: set ISTHMUS_SLOW=1")
async def test_the_check_names_the_right_that_is_missing_and_the_link_copies_once_it_is_there(pair):
    """The link's user is ANONYMOUS; here it is no super user and may do what no ACL speaks of."""
    tag = fresh("rights")
    own = ("allow.everyone.if.no.acl.found=true", "super.users=User:nobody", _AUTHORIZER[0])
    with apache_kafka("acl-plain", *own) as plain:
        link = Pair("apache", plain, pair.west).link(f"{tag}.*")
        async with ClusterClient(plain) as source, ClusterClient(pair.west) as target:
            await create(source, tag)
            await create(source, f"{tag}-fine")
            await produce(source, tag, some(3))
            assert _errors(await check_link(source, target, link)) == []
            denied = ("TOPIC", "LITERAL", tag, "ANONYMOUS", "READ", "DENY")
            allowed = ("TOPIC", "LITERAL", tag, "ANONYMOUS", "ALL", "ALLOW")
            await Acls(plain).add(denied, allowed)

            async def named():
                return _errors(await check_link(source, target, link)) == [
                    ("rights", link.source.alias, "copying needs READ on these topics", (tag,))
                ]

            await eventually(named, "the missing right is named", 60)
            await Acls(plain).remove(denied)
            async with running(link):
                await copied_to(target, link, tag, 3)


@pytest.mark.skipif(os.environ.get("ISTHMUS_SLOW") != "1", reason="a third Apache Kafka: set ISTHMUS_SLOW=1")
async def test_a_right_that_is_lost_on_the_way_stops_its_topic_alone_and_is_said(pair):
    """READ at the source, then WRITE at the target, of one topic of two, while the link runs."""
    own = ("allow.everyone.if.no.acl.found=true", "super.users=User:nobody", _AUTHORIZER[0])
    with apache_kafka("acl-lost", *own) as plain:
        for operation, bootstraps in (("READ", (plain, pair.west)), ("WRITE", (pair.east, plain))):
            tag = fresh(f"lost-{operation.lower()}")
            link = Pair("apache", *bootstraps).link(f"{tag}.*", retry_refused_s=1, sync_topic_acls=False)
            fine, lost = f"{tag}-fine", f"{tag}-lost"
            at = lost if operation == "READ" else f"{link.source.alias}.{lost}"
            rows = [
                ("TOPIC", "LITERAL", at, "ANONYMOUS", operation, "DENY"),
                ("TOPIC", "LITERAL", at, "ANONYMOUS", "ALL", "ALLOW"),
            ]
            async with (
                ClusterClient(bootstraps[0]) as source,
                ClusterClient(bootstraps[1]) as target,
                running(link) as run,
            ):
                for name in (fine, lost):
                    await create(source, name)
                    await produce(source, name, some(3))
                    await copied_to(target, link, name, 3)
                await Acls(plain).add(*rows)
                await produce(source, fine, some(3))
                await produce(source, lost, some(3))
                await copied_to(target, link, fine, 6)

                async def said(run=run, lost=lost):
                    return "AUTHORIZATION" in run.partition(lost).get("reason", "")

                await eventually(said, f"the lost right to {operation} is in the status", 60)
                await produce(source, fine, some(3))
                await copied_to(target, link, fine, 9)
                await Acls(plain).remove(rows[0])
                await copied_to(target, link, lost, 6)


@pytest.mark.skipif(os.environ.get("ISTHMUS_SLOW") != "1", reason="a third Apache Kafka: set ISTHMUS_SLOW=1")
async def test_the_check_names_rights_on_groups_of_workers_and_transactional_ids(pair):
    """Denied, named, granted; and what the check has asked leaves nothing behind."""
    tag = fresh("own")
    own = ("allow.everyone.if.no.acl.found=true", "super.users=User:nobody", _AUTHORIZER[0])
    with apache_kafka("acl-own", *own) as plain:
        link = Pair("apache", pair.east, plain).link(f"{tag}.*", exactly_once=True)
        transactional = ("TRANSACTIONAL_ID", "PREFIXED", link.transactional_id, "ANONYMOUS")
        denied = {
            "READ on the group": [("GROUP", "LITERAL", link.workers_group, "ANONYMOUS", "READ", "DENY")],
            "WRITE is missing": [(*transactional, "WRITE", "DENY")],
            "DESCRIBE is missing": [(*transactional, "DESCRIBE", "DENY")],
            "no idempotent producer": [  # either is enough (KIP-679)
                ("TOPIC", "LITERAL", "*", "ANONYMOUS", "WRITE", "DENY"),
                ("BROKER", "LITERAL", "kafka-cluster", "ANONYMOUS", "IDEMPOTENT_WRITE", "DENY"),
            ],
        }
        others = {
            (kind, pattern, name, who, "ALL", "ALLOW")
            for rows in denied.values()
            for kind, pattern, name, who, _, _ in rows
        }
        async with ClusterClient(pair.east) as source, ClusterClient(plain) as target:
            await create(source, tag)
            await Acls(plain).add(*others)

            async def says(words=None):
                found = [one.what for one in await check_link(source, target, link)]
                told = {each for each in denied if any(each in what for what in found)}
                return told == ({words} if words else set())

            await eventually(says, "nothing is missing", 60)
            for words, rows in denied.items():
                await Acls(plain).add(*rows)
                await eventually(lambda words=words: says(words), f"the check says: {words}", 60)
                await Acls(plain).remove(*rows)
            await eventually(says, "nothing is missing any more", 60)
            assert not [one for one in await target.list_groups() if one.group_id == link.workers_group]


async def test_writers_get_their_rights_after_a_fail_over_and_lose_them_again(pair):
    """The source is not asked: what the link withheld is noted at the target."""
    tag = fresh("writers")
    link = pair.link(f"{tag}.*", sync_topic_acls_interval_s=0.3)
    there = f"{link.source.alias}.{tag}"
    await Acls(pair.east).add(
        ("TOPIC", "LITERAL", tag, "ann", "READ", "ALLOW"),
        ("TOPIC", "LITERAL", tag, "bob", "WRITE", "ALLOW"),
        ("TOPIC", "LITERAL", tag, "dan", "ALL", "ALLOW"),
        ("TOPIC", "PREFIXED", tag, "fay", "WRITE", "ALLOW"),
    )
    west = Acls(pair.west)
    synced = {
        ("TOPIC", "LITERAL", there, "ann", "READ", "ALLOW"),
        ("TOPIC", "LITERAL", there, "dan", "READ", "ALLOW"),
    }
    others = ("TOPIC", "PREFIXED", there, "fay", "WRITE", "ALLOW")
    granted = {
        ("TOPIC", "LITERAL", there, "bob", "WRITE", "ALLOW"),
        ("TOPIC", "LITERAL", there, "dan", "ALL", "ALLOW"),
    }
    await west.add(others)
    async with ClusterClient(pair.east) as client:
        await create(client, tag)

    async def has(rows):
        return await west.about(there) == rows

    async with running(link):
        await eventually(lambda: has(synced | {others}), "readers may read", 60)
    async with ClusterClient(pair.west) as target:
        store = ProgressStore(target, link.progress_topic)
        would = await grant_writers(target, store, dry_run=True)
        assert (len(would.done), len(would.left)) == (2, 1)
        assert await has(synced | {others})
        assert len((await grant_writers(target, store, dry_run=False)).done) == 2
        await eventually(lambda: has(synced | granted | {others}), "writers may write", 60)
        async with running(link) as run:  # the link leaves them alone

            async def looked():
                return run.status.to_json().get("acls", {}).get("reason", "") is None

            await eventually(looked, "ACLs were compared", 60)
        assert await has(synced | granted | {others})
        assert len((await revoke_writers(target, store, dry_run=False)).done) == 2
        await eventually(lambda: has(synced | {others}), "they may not any more", 60)
        assert (await revoke_writers(target, store, dry_run=False)).done == []


def _errors(findings):
    return [(one.check, one.where, one.what, one.subjects) for one in findings if one.level is Level.ERROR]


@pytest.mark.timeout(600)
@pytest.mark.skipif(os.environ.get("ISTHMUS_SLOW") != "1", reason="starts MirrorMaker 2: set ISTHMUS_SLOW=1")
async def test_what_mirrormaker_grants_we_grant_and_what_it_leaves_for_ever_we_revoke(pair, tmp_path):
    tag = fresh("beside")
    topic = f"{tag}-orders"
    rows = {
        (kind, pattern, name, who, operation, permission)
        for kind, pattern, name in (("TOPIC", "LITERAL", topic), ("TOPIC", "PREFIXED", tag))
        for who, operation, permission in (
            ("ann", "READ", "ALLOW"),
            ("bob", "WRITE", "ALLOW"),
            ("dan", "ALL", "ALLOW"),
            ("eve", "ALL", "DENY"),
            ("fay", "WRITE", "DENY"),
            ("gus", "DESCRIBE", "ALLOW"),
            ("hal", "DELETE", "ALLOW"),
        )
    }
    east, west = Acls(pair.east), Acls(pair.west)
    await east.add(*rows)
    async with ClusterClient(pair.east) as client:
        await create(client, topic)
    link = pair.link(f"{tag}.*", sync_topic_acls_interval_s=0.3, acls_revoke_at_most=12)

    async def granted(alias):
        found = await west.about(f"{alias}.{tag}")
        return {(k, p, n.removeprefix(f"{alias}."), w, o, a) for k, p, n, w, o, a in found}

    with _mirrormaker(pair, tmp_path, tag) as alias:

        async def beside():
            return len(await granted(alias)) == 6

        await eventually(beside, "MirrorMaker 2's ACLs", 120)
        theirs = await granted(alias)
        async with running(link):

            async def same():
                ours = await granted(link.source.alias)
                return {row for row in ours if row[1] == "LITERAL"} == theirs and len(ours) == 12

            await eventually(same, "the ACLs that MirrorMaker 2 grants, and the prefixed ones beside", 60)
            await east.remove(*rows)

            async def revoked():
                return await granted(link.source.alias) == set()

            await eventually(revoked, "ours are revoked", 60)
            assert await granted(alias) == theirs  # KAFKA-15119


@contextlib.contextmanager
def _mirrormaker(pair, tmp_path, tag):
    """A MirrorMaker 2 beside the link; the alias of its source."""
    alias, name = "mm", f"acl-mm2-{os.getpid()}"
    script = kafka_script().with_name("mm2.sh")
    file = tmp_path / "mm2.properties"
    file.write_text(
        f"""clusters = {alias}, there
{alias}.bootstrap.servers = {pair.east}
there.bootstrap.servers = {pair.west}
{alias}->there.enabled = true
there->{alias}.enabled = false
topics = {tag}.*
groups = {tag}.*
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
sync.topic.acls.interval.seconds = 2
refresh.topics.interval.seconds = 2
""",
        encoding="utf-8",
    )
    try:
        subprocess.run(
            [script, "start", file, name],
            env={"INTEROP_WAIT_S": "240", **os.environ},
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=260,
        )
        yield alias
    finally:
        subprocess.run([script, "stop", name], check=True, stdout=subprocess.DEVNULL, timeout=60)
