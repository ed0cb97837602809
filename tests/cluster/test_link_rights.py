"""The rights that a link itself needs, named before it starts and lost while it runs: between Apache Kafka
clusters with an authorizer.
"""

from collections.abc import Iterator

import pytest

from protocol.client import ClusterClient
from replicator.preflight import Level, check_link
from tests.cluster.acls import AUTHORIZER, Acls, two_with_acls
from tests.cluster.links import Pair, copied_to, create, eventually, fresh, produce, running, some
from tests.support.apache_kafka import apache_kafka
from tests.support.slow import slow

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with two_with_acls("rights") as pair:
        yield pair


@slow("a third Apache Kafka")
async def test_the_check_names_the_right_that_is_missing_and_the_link_copies_once_it_is_there(pair):
    """The link's user is ANONYMOUS; here it is no super user and may do what no ACL speaks of."""
    tag = fresh("rights")
    own = ("allow.everyone.if.no.acl.found=true", "super.users=User:nobody", AUTHORIZER[0])
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


@slow("a third Apache Kafka")
async def test_a_right_that_is_lost_on_the_way_stops_its_topic_alone_and_is_said(pair):
    """READ at the source, then WRITE at the target, of one topic of two, while the link runs."""
    own = ("allow.everyone.if.no.acl.found=true", "super.users=User:nobody", AUTHORIZER[0])
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


@slow("a third Apache Kafka")
async def test_the_check_names_rights_on_groups_of_workers_and_transactional_ids(pair):
    """Denied, named, granted; and what the check has asked leaves nothing behind."""
    tag = fresh("own")
    own = ("allow.everyone.if.no.acl.found=true", "super.users=User:nobody", AUTHORIZER[0])
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


@slow("a third Apache Kafka")
async def test_the_check_names_rights_on_the_topics_that_the_link_keeps_for_itself(pair):
    """Denied, named with the topic, granted: without its progress topic a link copies nothing."""
    tag = fresh("kept")
    own = ("allow.everyone.if.no.acl.found=true", "super.users=User:nobody", AUTHORIZER[0])
    with apache_kafka("acl-kept", *own) as plain:
        link = Pair("apache", pair.east, plain).link(f"{tag}.*")
        levels = {
            link.progress_topic: Level.ERROR,
            "heartbeats": Level.WARNING,
            f"{link.source.alias}.{tag}": Level.ERROR,
        }
        async with ClusterClient(pair.east) as source, ClusterClient(plain) as target:
            await create(source, tag)
            await produce(source, tag, some(3))

            async def says(*expected):
                found = await check_link(source, target, link)
                named = [(one.level, one.subjects) for one in found if "needs WRITE on" in one.what]
                return named == [(level, (name,)) for name, level in expected]

            for name, level in levels.items():
                denied = ("TOPIC", "LITERAL", name, "ANONYMOUS", "WRITE", "DENY")
                await Acls(plain).add(denied, ("TOPIC", "LITERAL", name, "ANONYMOUS", "ALL", "ALLOW"))
                await eventually(lambda one=(name, level): says(one), f"the check names {name}", 60)
                await Acls(plain).remove(denied)
                await eventually(says, f"nothing is missing on {name}", 60)
            async with running(link):
                await copied_to(target, link, tag, 3)


def _errors(findings):
    return [(one.check, one.where, one.what, one.subjects) for one in findings if one.level is Level.ERROR]
