"""Writers at the mirrors: granted once, what others granted is left alone, a refusal stops nobody else."""

import pytest

from protocol.client import Acl, AclOperation, AclPattern, AclPermission, AclResource
from protocol.errors import ErrorCode, KafkaError
from replicator import acl_store
from replicator.acl_rules import Granted
from replicator.progress import Progress
from replicator.writers import grant_writers, revoke_writers


def write(name, who):
    return Acl(
        AclResource.TOPIC,
        AclPattern.LITERAL,
        name,
        f"User:{who}",
        "*",
        AclOperation.WRITE,
        AclPermission.ALLOW,
    )


ANN, BOB, CARL = (write("east.orders", who) for who in ("ann", "bob", "carl"))


class Target:
    def __init__(self, *acls, refuses=()):
        self.acls, self.refuses = set(acls), set(refuses)
        self.code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    async def describe_acls(self, resource):
        return set(self.acls)

    async def create_acls(self, acls):
        self._check(acls)
        self.acls |= set(acls)

    async def delete_acls(self, acls):
        self._check(acls)
        self.acls -= set(acls)

    def _check(self, acls):
        for acl in acls:
            if acl in self.refuses:
                raise KafkaError(self.code, str(acl))


class Store:
    def __init__(self, *withheld):
        self.progress = Progress()
        self._apply({}, {acl: granted(acl) for acl in withheld}, acl_store.WITHHELD)

    def _apply(self, before, after, prefix):
        self.progress.apply(acl_store.rows_of(before, after, prefix))

    async def refresh(self):
        return self.progress

    async def save_writers(self, before, after):
        self._apply(before, after, acl_store.WRITERS)


def granted(acl):
    return Granted("c1", frozenset({acl._replace(name="orders")}))


@pytest.fixture
def store():
    return Store(ANN, BOB, CARL)


async def test_what_was_withheld_is_granted_and_exactly_that_taken_back(store):
    target = Target(BOB)
    would = await grant_writers(target, store, dry_run=True)
    assert (would.done, would.left, target.acls, store.progress.writers()) == ([ANN, CARL], [BOB], {BOB}, {})
    assert (await grant_writers(target, store, dry_run=False)).done == [ANN, CARL]
    assert target.acls == {ANN, BOB, CARL}
    assert (await grant_writers(target, store, dry_run=False)).done == []  # again: nothing to do
    target.acls.remove(CARL)  # by somebody
    back = await revoke_writers(target, store, dry_run=False)
    assert (back.done, back.left, target.acls) == ([ANN], [CARL], {BOB})
    assert store.progress.writers() == {}


async def test_what_is_refused_is_said_and_tried_when_asked_again(store):
    target = Target(refuses=[BOB])
    result = await grant_writers(target, store, dry_run=False)
    assert (result.done, list(result.refused)) == ([ANN, CARL], [BOB])
    assert store.progress.writers().keys() == {ANN, CARL}
    target.refuses = {CARL}
    assert (await revoke_writers(target, store, dry_run=False)).done == [ANN]
    assert store.progress.writers().keys() == {CARL}
    target.refuses = set()
    assert (await revoke_writers(target, store, dry_run=False)).done == [CARL]
    assert target.acls == set()


async def test_a_grant_whose_outcome_is_not_known_is_taken_back_with_the_others(store):
    target = Target(refuses=[ANN])
    target.code = ErrorCode.REQUEST_TIMED_OUT
    assert set((await grant_writers(target, store, dry_run=False)).refused) == {ANN}
    target.acls.add(ANN)  # late
    target.refuses = set()
    await revoke_writers(target, store, dry_run=False)
    assert target.acls == set()
