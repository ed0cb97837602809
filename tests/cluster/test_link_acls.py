"""ACLs over a link between two Apache Kafka clusters with an authorizer: granted, withheld, revoked.

confluent-kafka's AdminClient makes the source's ACLs and reads the target's.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator

import pytest

from protocol.client import ClusterClient
from replicator.acl_report import acl_report
from replicator.progress import ProgressStore
from replicator.writers import grant_writers, revoke_writers
from tests.cluster.acls import Acls, two_with_acls
from tests.cluster.links import Pair, create, eventually, fresh, produce, running, some
from tests.support.apache_kafka import kafka_script
from tests.support.slow import slow

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with two_with_acls("acl") as pair:
        yield pair


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


async def test_what_two_links_need_goes_with_the_last_of_them(pair):
    """Two that take the same group's ACL along; one rests while it is revoked at the source."""
    tag = fresh("shared")
    row = ("GROUP", "LITERAL", f"{tag}-readers", "ann", "READ", "ALLOW")
    east, west = Acls(pair.east), Acls(pair.west)
    await east.add(row, ("TOPIC", "LITERAL", fresh("stays"), "ann", "READ", "ALLOW"))
    links = [pair.link(f"{tag}.*", sync_topic_acls_interval_s=0.3) for _ in range(2)]
    async with ClusterClient(pair.east) as source, ClusterClient(pair.west) as target:
        await create(source, f"{tag}-orders")

        async def owners() -> int:
            progress = [await ProgressStore(target, link.progress_topic).refresh() for link in links]
            return sum(one.name == row[2] for rows in progress for one in rows.acls())

        async def owned(number: int) -> None:
            async def so() -> bool:
                return await owners() == number

            await eventually(so, f"{number} links have granted it", 60)

        async with running(links[0]):
            await owned(1)
            async with running(links[1]):
                await owned(2)
            await east.remove(row)
            await owned(1)
            assert await west.about(tag) == {row}  # the one that rests may still need it
        async with running(links[1]):
            await owned(0)
        assert await west.about(tag) == set()


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


@pytest.mark.timeout(600)
@slow("starts MirrorMaker 2")
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
