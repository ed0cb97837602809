"""Topics that are deleted and made again, at the source or at the target, by the link's policy."""

from protocol.client import Committed
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition
from replicator.acknowledgements import Acknowledgement, open_differences
from replicator.drift import mirrors_now
from replicator.link_report import link_report
from replicator.progress import ProgressStore, read_ledgers
from tests.cluster.links import (
    BOTH_SOURCES,
    content,
    copied_to,
    create,
    eventually,
    fresh,
    produce,
    running,
    some,
)
from tests.support.slow import slow

pytestmark = BOTH_SOURCES


async def _made_again(client, topic, partitions=1):
    await client.delete_topics([topic])

    async def made():
        try:
            await create(client, topic, partitions)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    await eventually(made, f"{topic} is made again", 60)


async def _values(client, topic, partition=0):
    return [value for _, _, value, _ in await content(client, topic, partition)]


def _expected(tag, count):
    return [b"%s-%d" % (tag, i) for i in range(count)]


async def _arrives(client, link, topic, mirror, end):
    async def there():
        ledger = (await read_ledgers(client, link.name)).get(TopicPartition(topic, 0))
        return ledger is not None and ledger.target.topic == mirror and ledger.next_source_offset >= end

    await eventually(there, f"{topic} is copied into {mirror} up to {end}", 60)


async def test_a_source_topic_made_again_gets_a_new_mirror_at_once_and_after_a_restart(pair, clients):
    east, west = clients
    topic = fresh("anew")
    link = pair.link(topic, on_recreated="new_mirror", refresh_topics_interval_s=0.3)
    first = f"{link.source.alias}.{topic}"
    second, third = f"{first}.mirror-2", f"{first}.mirror-3"
    await create(east, topic)
    await produce(east, topic, some(20, "a"))
    async with running(link) as running_link:
        await copied_to(west, link, topic, 20)
        await _made_again(east, topic)
        await produce(east, topic, some(7, "b"))
        await east.commit(topic, {TopicPartition(topic, 0): Committed(5)})
        await _arrives(west, link, topic, second, 7)

        async def followed():
            return (await west.committed(topic)).get(TopicPartition(second, 0)) is not None

        await eventually(followed, "the group stands in the new mirror", 60)
        assert running_link.status.to_json()["mirrors"][topic]["current"] == second
        assert await running_link.stop() == 0  # all of the first one was copied
    assert await _values(west, first) == _expected(b"a", 20)
    assert await _values(west, second) == _expected(b"b", 7)
    assert (await west.committed(topic))[TopicPartition(second, 0)].offset == 5
    await produce(east, topic, some(3, "missed"))
    await _made_again(east, topic, 2)
    await produce(east, topic, some(4, "c"))
    async with running(link) as running_link:
        await _arrives(west, link, topic, third, 4)
        assert await running_link.stop() == 3  # nobody knows what was missed: on record
    assert await _values(west, second) == _expected(b"b", 7)
    assert await _values(west, third) == _expected(b"c", 4)
    report = await link_report(link)
    (row,) = [row for row in report.rows if (row["topic"], row["partition"]) == (topic, 0)]
    assert (row["at_target"], [gap[:2] for gap in row["gaps"]]) == (third, [(7, 7)])
    assert await mirrors_now(west, link) == {topic: third}
    mirror = report.mirrors[topic]
    assert (mirror["current"], [one["at_target"] for one in mirror["former"]]) == (third, [first, second])


async def test_a_mirror_that_was_made_again_or_deleted_gets_a_new_one_with_everything(pair, clients):
    east, west = clients
    topic = fresh("mirror-anew")
    link = pair.link(topic, on_recreated="new_mirror", refresh_topics_interval_s=0.3)
    first = f"{link.source.alias}.{topic}"
    second, third = f"{first}.mirror-2", f"{first}.mirror-3"
    await create(east, topic)
    await produce(east, topic, some(20, "a"))
    async with running(link) as running_link:
        await copied_to(west, link, topic, 20)
        assert await running_link.stop() == 0
    await _made_again(west, first)
    async with running(link) as running_link:
        await _arrives(west, link, topic, second, 20)
        await west.delete_topics([second])
        await produce(east, topic, some(5, "b"))
        await _arrives(west, link, topic, third, 25)
        assert await running_link.stop() == 0
    assert await _values(west, first) == []
    assert await _values(west, third) == _expected(b"a", 20) + _expected(b"b", 5)
    assert second not in (await west.metadata(None)).topics


@slow("four seconds; the rule is in test_beginning")
async def test_with_stop_nothing_of_a_topic_made_again_is_copied_before_somebody_acknowledges(pair, clients):
    east, west = clients
    topic = fresh("stopped")
    link = pair.link(topic, on_recreated="stop", refresh_topics_interval_s=0.3)
    mirror = f"{link.source.alias}.{topic}"
    await create(east, topic)
    await produce(east, topic, some(20, "a"))

    async def held():
        return running_link.partition(topic).get("state") == "held"

    async with running(link) as running_link:
        await copied_to(west, link, topic, 20)
        await _made_again(east, topic)
        await produce(east, topic, some(5, "b"))
        await eventually(held, "the partition stops", 60)
        assert "re-created" in running_link.partition(topic)["reason"]
        assert await running_link.stop() == 3
    async with running(link) as running_link:  # a restart does not forget
        await eventually(held, "it still stands", 60)
        assert await _values(west, mirror) == _expected(b"a", 20)
        await _acknowledge_all(west, link)
        await copied_to(west, link, topic, 5)
        await west.delete_topics([mirror])
        await eventually(held, "it stops before it fills the mirror again", 60)
        assert await _values(west, mirror) == []
        await _acknowledge_all(west, link)

        async def filled():
            return await _values(west, mirror) == _expected(b"b", 5)

        await eventually(filled, "it goes on", 60)
        assert await running_link.stop() == 0


async def _acknowledge_all(client, link):
    store = ProgressStore(client, link.progress_topic)
    ledgers = {tp: entry.ledger for tp, entry in (await store.refresh()).entries().items()}
    found = open_differences(ledgers, store.acknowledged)
    assert found
    await store.save_acknowledged(dict.fromkeys(found, Acknowledgement("ann", "known", 1)))
