"""ACLs: what of the source's holds at the target, who may take it back, and that it is remembered."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.client import Acl, AclOperation, AclPattern, AclPermission, AclResource, TopicMetadata
from protocol.client.group_calls import ListedGroup
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition
from replicator import acl_report, acl_store
from replicator.acl_rules import (
    NOT_OURS,
    OTHER_KIND,
    WRITE_WITHHELD,
    Granted,
    Scope,
    plan,
    still_withheld,
    translate,
)
from replicator.acl_sync import AclSync
from replicator.discovery import Found, Wanted
from replicator.naming import Naming
from replicator.progress import Progress, ProgressStore
from replicator.renaming import Rename
from replicator.settings import LinkSettings

READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
TOPIC, GROUP = AclResource.TOPIC, AclResource.GROUP
LITERAL, PREFIXED = AclPattern.LITERAL, AclPattern.PREFIXED
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY


def acl(name, operation=READ, permission=ALLOW, pattern=LITERAL, resource=TOPIC, who="User:ann"):
    return Acl(resource, pattern, name, who, "*", operation, permission)


def scope(*, identity=False, topics=("orders", "orders-eu"), groups=("billing",), accepts=lambda name: True):
    naming = Naming("east", "west", ".", identity)
    names = {name: naming.at_target(name) for name in topics}
    return Scope(naming, names, groups, accepts, lambda name: name != "payroll")


def wanted(source, **kw):
    return set(translate(source, scope(**kw)).wanted)


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (acl("orders"), acl("east.orders")),
        (acl("orders", ALL), acl("east.orders", READ)),
        (acl("orders", ALL, DENY), acl("east.orders", ALL, DENY)),
        (acl("orders", WRITE, DENY), acl("east.orders", WRITE, DENY)),
        (acl("orders", AclOperation.DESCRIBE), acl("east.orders", AclOperation.DESCRIBE)),
        (acl("ord", pattern=PREFIXED), acl("east.ord", pattern=PREFIXED)),
        (acl("ord", ALL, pattern=PREFIXED), acl("east.ord", READ, pattern=PREFIXED)),
        (acl("*"), acl("east.", pattern=PREFIXED)),
        (acl("billing", resource=GROUP), acl("billing", resource=GROUP)),
        (acl("billing", ALL, resource=GROUP), acl("billing", ALL, resource=GROUP)),
        (acl("bill", resource=GROUP, pattern=PREFIXED), acl("bill", resource=GROUP, pattern=PREFIXED)),
    ],
    ids=str,
)
def test_an_acl_is_translated_by_the_names_of_the_link(given_, expected):
    assert wanted([given_]) == {expected}


@pytest.mark.parametrize(
    ("given_", "why"),
    [
        (acl("orders", WRITE), WRITE_WITHHELD),
        (acl("ord", WRITE, pattern=PREFIXED), WRITE_WITHHELD),
        (acl("*", WRITE), WRITE_WITHHELD),
        (acl("payroll"), NOT_OURS),
        (acl("pay", pattern=PREFIXED), NOT_OURS),
        (acl("kafka-cluster", resource=AclResource.CLUSTER), OTHER_KIND),
        (acl("tx", resource=AclResource.TRANSACTIONAL_ID), OTHER_KIND),
    ],
    ids=str,
)
def test_what_is_left_out_has_a_reason(given_, why):
    found = translate([given_], scope())
    assert not found.wanted
    assert found.left_out == {given_: why}


def test_with_identical_names_everything_is_the_topics_of_the_link_and_no_other():
    assert wanted([acl("*")], identity=True) == {acl("orders"), acl("orders-eu")}
    assert wanted([acl("*", resource=GROUP)], groups=("a", "b")) == {
        acl("a", resource=GROUP),
        acl("b", resource=GROUP),
    }
    assert wanted([acl("ord", pattern=PREFIXED)], identity=True) == {acl("ord", pattern=PREFIXED)}


def test_topics_that_are_renamed_have_no_prefix_in_common():
    renamed = Scope(Naming("east", "west", ".", True), {"orders": "sales", "orders-eu": "x"}, (), str, str)
    found = translate([acl("ord", pattern=PREFIXED), acl("orders")], renamed)
    assert set(found.wanted) == {acl("sales"), acl("x")}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("orders=sales", acl("sales")),  # `sales.*` at the target is somebody else's
        (r"(orders.*)=old.\1", acl("old.orders", pattern=PREFIXED)),
    ],
)
def test_a_prefix_is_translated_where_a_rule_renames_all_that_it_covers(rule, expected):
    naming = Naming("east", "west", ".", identity=True, rename=(Rename.parse(rule),))
    renamed = Scope(naming, {"orders": naming.at_target("orders")}, (), str, str)
    assert set(translate([acl("orders", pattern=PREFIXED)], renamed).wanted) == {expected}


def test_what_is_denied_is_denied_before_its_topic_is_there():
    secret, prefixed = acl("secret", ALL, DENY), acl("sec", READ, DENY, pattern=PREFIXED)
    at_target = {acl("east.secret", ALL, DENY), acl("east.sec", READ, DENY, pattern=PREFIXED)}
    assert wanted([secret, prefixed]) == at_target
    assert wanted([secret, prefixed], identity=True) == set()  # there it could be the target's own topic
    assert wanted([acl("payroll", ALL, DENY)]) == set()  # the link does not copy it


def test_what_is_denied_is_denied_before_anything_is_allowed_and_as_long():
    rows = {acl("ord", READ, DENY, pattern=PREFIXED), acl("orders"), acl("*", pattern=PREFIXED)}
    rows |= {acl("billing", resource=GROUP), acl("billing", resource=GROUP, permission=DENY)}
    made = plan(translate(rows, scope()), rows, set(), {}, "E")
    assert [one.permission for one in made.create] == [DENY, DENY, ALLOW, ALLOW]
    going = plan(translate(set(), scope()), set(), set(made.create), made.owned, "E", 4)
    assert [one.permission for one in going.revoke] == [ALLOW, ALLOW, DENY, DENY]


class Cluster:
    """One side of an `AclSync`. `refuses`: with which error, by ACL."""

    cluster_id = "E"

    def __init__(self, *acls):
        self.acls, self.refuses = set(acls), {}

    async def describe_acls(self, resource):
        await asyncio.sleep(0)  # others come in between
        return {one for one in self.acls if one.resource is resource}

    async def create_acls(self, acls):
        for one in acls:
            if one in self.refuses:
                raise KafkaError(self.refuses[one], str(one))
        self.acls |= set(acls)

    async def delete_acls(self, acls):
        self.acls -= set(acls)


def sync_of(source, target, stored, others=lambda: ()):
    async def store(before, after):
        stored.append(after)

    async def of_others():
        return {one for rows in others() for one in (rows[-1] if rows else ())}

    return AclSync(source, target, scope, store, report_only=False, of_others=of_others)


@pytest.mark.parametrize("code", [ErrorCode.INVALID_REQUEST, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
async def test_what_the_target_did_not_take_is_not_the_links_and_stays_when_somebody_else_grants_it(code):
    source, target, stored = Cluster(acl("orders"), acl("orders-eu")), Cluster(), []
    sync = sync_of(source, target, stored)
    mine, refused = acl("east.orders"), acl("east.orders-eu")
    target.refuses = {refused: code, **({mine: code} if code is not ErrorCode.INVALID_REQUEST else {})}
    await sync.once()
    granted = {mine} - target.refuses.keys()
    assert set(sync.owned) == set(stored[-1]) == granted
    assert sync.to_json()["granted_by_link"] == len(granted)
    assert str(refused) in sync.to_json()["refused"]
    target.acls.add(refused)  # by an administrator
    source.acls.discard(acl("orders-eu"))
    target.refuses = {}
    await sync.once()
    assert refused in target.acls


async def test_what_the_target_may_have_taken_is_the_links():
    source, target, stored = Cluster(acl("orders"), acl("orders-eu")), Cluster(), []
    sync = sync_of(source, target, stored)
    mine = acl("east.orders")
    target.refuses = {mine: ErrorCode.REQUEST_TIMED_OUT}
    await sync.once()
    target.acls.add(mine)  # late
    source.acls.discard(acl("orders"))
    await sync.once()
    assert mine not in target.acls


BILLING = acl("billing", resource=GROUP)


def two_links():
    """Of two sources into one cluster; groups have the same name everywhere."""
    east, north, target, rows = Cluster(BILLING), Cluster(BILLING), Cluster(), ([], [])
    one = sync_of(east, target, rows[0], lambda: [rows[1]])
    other = sync_of(north, target, rows[1], lambda: [rows[0]])
    return east, north, target, one, other


async def test_what_another_link_still_needs_is_not_revoked_and_goes_with_the_last():
    """The first one had granted it, and the other took it for an administrator's."""
    east, north, target, one, other = two_links()
    for sync in (one, other, one):
        await sync.once()
    east.acls.clear()
    east.acls.add(acl("orders"))
    await one.once()
    assert BILLING in target.acls
    assert BILLING not in one.owned
    await one.once()
    north.acls.clear()
    north.acls.add(acl("orders"))
    await other.once()
    assert BILLING not in target.acls
    await one.once()
    assert BILLING not in target.acls


async def test_two_links_that_revoke_at_the_same_moment_do_not_leave_it_to_each_other():
    east, north, target, one, other = two_links()
    await one.once()
    await other.once()
    for side in (east, north):
        side.acls.clear()
        side.acls.add(acl("orders"))
    await asyncio.gather(one.once(), other.once())
    assert BILLING not in target.acls
    assert BILLING not in {*one.owned, *other.owned}


async def test_what_an_administrator_granted_is_nobodys_with_two_links_too():
    east, north, target, one, other = two_links()
    target.acls.add(BILLING)
    for sync in (one, other):
        await sync.once()
    for side in (east, north):
        side.acls.clear()
        side.acls.add(acl("orders"))
    for sync in (one, other):
        await sync.once()
    assert BILLING in target.acls


async def test_the_report_from_outside_counts_the_same_groups_as_the_link(monkeypatch):
    """Of `*`, those that have read what is copied: the link would never grant others."""
    link = LinkSettings.model_validate(
        {"source": {"alias": "east", "bootstrap": "a:1"}, "target": {"alias": "west", "bootstrap": "b:1"}}
    )
    copied = TopicPartition("orders", 0)
    progress = Progress()
    progress.apply([(b"partition/orders/0", b"{}")])
    reads = {"billing": {copied: 5}, "other": {TopicPartition("payroll", 0): 5}, "hidden": None}

    class Source(Cluster):
        async def list_groups(self):
            return [ListedGroup(name, "consumer", "Stable", "", 1) for name in (*reads, "shared")]

        async def committed(self, group, again=None):
            if reads.get(group) is None:
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, group)
            return reads[group]

    async def found(*_):
        topic = TopicMetadata("orders", bytes(16), ErrorCode.NONE, False, {})
        return Found({"orders": Wanted(topic, "east.orders", topic)})

    async def refreshed(_):
        return progress

    monkeypatch.setattr(acl_report, "found_now", found)
    monkeypatch.setattr(ProgressStore, "refresh", refreshed)
    source = Source(acl("*", resource=GROUP), acl("orders"))
    report = await acl_report.acl_report(source, Cluster(), link)
    assert report["to_grant"] == [str(acl("east.orders")), str(acl("billing", resource=GROUP))]


def test_groups_follow_the_links_filter():
    only_billing = {"accepts": lambda name: name == "billing"}
    assert wanted([acl("other", resource=GROUP)], **only_billing) == set()
    assert wanted([acl("bill", resource=GROUP, pattern=PREFIXED)], **only_billing)  # billing is one of them
    assert wanted([acl("oth", resource=GROUP, pattern=PREFIXED)], **only_billing) == set()


def why(*origins, cluster="E"):
    return Granted(cluster, frozenset(origins))


def step(source, target, owned, *, cluster="E", at_most=100, **kw):
    """One pass; the state behind it."""
    made = plan(translate(source, scope(**kw)), source, target, owned, cluster, at_most)
    return (set(target) | set(made.create)) - set(made.revoke), made.owned


def test_what_was_revoked_at_the_source_is_revoked_if_the_link_had_granted_it():
    foreign = acl("east.orders", who="User:bob")
    source = {acl("orders"), acl("orders", who="User:bob")}
    target, owned = step(source, {foreign}, {})
    assert target == {acl("east.orders"), foreign}
    assert owned == {acl("east.orders"): why(acl("orders"))}
    assert step(set(), target, owned) == ({foreign}, {})


def test_a_topic_that_is_not_seen_takes_no_rights_away():
    source = {acl("orders")}
    target, owned = step(source, set(), {})
    assert step(source, target, owned, topics=()) == (target, owned)
    assert step(set(), target, owned, topics=()) == (set(), {})


def test_a_right_with_two_origins_goes_with_the_second():
    both = {acl("orders"), acl("orders", ALL)}
    target, owned = step(both, set(), {})
    target, owned = step({acl("orders")}, target, owned)
    assert target == {acl("east.orders")}
    target, owned = step({acl("orders", ALL)}, target, owned)
    assert target == {acl("east.orders")}
    assert owned == {acl("east.orders"): why(acl("orders", ALL))}
    assert step(set(), target, owned) == (set(), {})


def test_a_right_with_two_origins_stays_while_its_topic_is_not_seen_and_one_is_left():
    both = {acl("orders"), acl("orders", ALL)}
    target, owned = step(both, set(), {})
    assert owned == {acl("east.orders"): why(*both)}
    for left in both:
        kept, owned_then = step({left}, target, owned, topics=())
        assert (kept, owned_then) == (target, {acl("east.orders"): why(left)})


def test_another_cluster_with_the_sources_alias_takes_no_rights_away():
    rows = {acl("orders"), acl("orders", who="User:bob")}
    target, owned = step(rows, set(), {})
    rebuilt = {acl("orders"), acl("orders-eu")}
    target, owned = step(rebuilt, target, owned, cluster="F")
    assert acl("east.orders", who="User:bob") in target
    assert owned[acl("east.orders")] == why(acl("orders"), cluster="F")
    assert owned[acl("east.orders", who="User:bob")].cluster == "E"
    target, owned = step(rebuilt, target, owned)  # the old one again, without bob's
    assert acl("east.orders", who="User:bob") not in target


def test_a_source_that_shows_nothing_or_too_little_takes_rights_only_when_that_is_allowed():
    rows = {acl("orders", who=f"User:{n}") for n in range(50)}
    owned = plan(translate(rows, scope()), rows, set(), {}, "E").owned

    def going(left, at_most=None):
        made = plan(translate(left, scope()), left, set(owned), owned, "E", at_most)
        assert made.owned.keys() == owned.keys() - set(made.revoke)
        return len(made.revoke), len(made.held), made.held_because or ""

    some = set(sorted(rows)[12:])
    assert going(some) == (12, 0, "")  # a quarter
    assert going(set(sorted(some)[1:]))[:2] == (0, 13)
    assert "acls_revoke_at_most: 13" in going(set(sorted(some)[1:]))[2]
    assert going(set(sorted(some)[1:]), at_most=13)[0] == 13
    assert going(some, at_most=0)[:2] == (0, 12)
    assert going(set())[:2] == (0, 50)
    assert "shows no ACLs at all" in going(set())[2]
    assert going(set(), at_most=49)[:2] == (0, 50)
    assert going(set(), at_most=50)[0] == 50
    one = {acl("orders")}
    first = plan(translate(one, scope()), one, set(), {}, "E").owned
    assert plan(translate(set(), scope()), set(), set(first), first, "E").held == [acl("east.orders")]


ACLS = st.builds(
    acl,
    st.sampled_from(["orders", "orders-eu", "ord", "*", "payroll", "a/b"]),
    st.sampled_from([READ, WRITE, ALL, AclOperation.DESCRIBE]),
    st.sampled_from([ALLOW, DENY]),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(["User:ann", "User:*"]),
)


@given(st.lists(st.sets(ACLS, max_size=8), min_size=1, max_size=5), st.sets(ACLS, max_size=4), st.booleans())
def test_any_history_ends_with_what_the_source_has_and_leaves_others_alone(history, foreign, identity):
    target, owned, stored = set(foreign), {}, Progress()
    for source in history:
        target, after = step(source, target, owned, identity=identity)
        stored.apply(acl_store.rows_of(owned, after))
        owned = after
        assert stored.acls() == owned  # a restart goes on with the same
        assert foreign <= target
        assert target == foreign | wanted(source, identity=identity)
        assert not any(
            a.operation in (WRITE, ALL) and a.permission is ALLOW and a.resource is TOPIC
            for a in target - foreign
        )
    assert step(set(), target, owned, identity=identity) == (foreign, {})


def test_rows_that_cannot_be_read_revoke_nothing():
    found = Progress()
    found.apply([(b"acls/TOPIC/LITERAL/east.orders", b"not json"), (b"acls/x", b"[[1]]")])
    assert found.acls() == {}


def test_what_writers_would_get_is_known_by_the_names_of_the_mirrors():
    orders, any_topic = acl("orders", WRITE), acl("*", ALL)
    found = translate([orders, any_topic, acl("orders", WRITE, DENY), acl("payroll", WRITE)], scope())
    assert found.withheld == {
        acl("east.orders", WRITE): {orders},
        acl("east.", ALL, pattern=PREFIXED): {any_topic},
    }
    noted = still_withheld(found.withheld, {}, [orders, any_topic], "c1")
    assert noted[acl("east.orders", WRITE)] == Granted("c1", frozenset({orders}))
    assert still_withheld({}, noted, [], "c1") == noted  # the source shows nothing any more
    assert still_withheld({}, noted, [orders], "c1").keys() == {acl("east.orders", WRITE)}
    assert still_withheld({}, noted, [orders], "c2") == {}  # another cluster took its alias


def test_rows_of_writers_are_not_those_of_what_the_link_has_granted():
    mine, withheld = acl("east.orders"), acl("east.orders", WRITE)
    granted = Granted("c1", frozenset({acl("orders", WRITE)}))
    progress = Progress()
    progress.apply(acl_store.rows_of({}, {mine: granted}))
    progress.apply(acl_store.rows_of({}, {withheld: granted}, acl_store.WITHHELD))
    assert (progress.acls(), progress.withheld(), progress.writers()) == (
        {mine: granted},
        {withheld: granted},
        {},
    )
    progress.apply(acl_store.rows_of({}, {withheld: granted}, acl_store.WRITERS))
    progress.apply(acl_store.rows_of({withheld: granted}, {}, acl_store.WITHHELD))
    assert (progress.acls(), progress.withheld(), progress.writers()) == (
        {mine: granted},
        {},
        {withheld: granted},
    )
