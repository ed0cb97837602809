"""What `reverse` does for an old source that is Apache Kafka, and can be no mirror."""

import asyncio
import json

import pytest

from protocol.records import decode_batches
from replicator.mirrors.assessing import SwitchRefused, find_mirrors
from replicator.mirrors.reversing import reverse, reversible
from replicator.mirrors.switching import failover
from tests.cluster.links import create, fresh, produce, some
from tests.cluster.mirrors import idempotent, log_bytes, mirror_link, mirrored_once, quiet, write

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.interop,
    pytest.mark.parametrize("pair", ["apache"], indirect=True),
]


async def test_reverse_saves_what_only_an_old_source_has_that_can_be_no_mirror(pair, clients, tmp_path):
    east, west = clients
    topic = fresh("kept")
    await create(east, topic)
    await produce(east, topic, some(5, "both"))
    link = mirror_link(pair.east, pair.west, topic)
    await mirrored_once(east, west, link, topic)
    await failover(None, west, link, await find_mirrors(west, link), quiet)
    await produce(east, topic, some(3, "east"))
    assert await asyncio.to_thread(write, idempotent(pair.west), topic, ["west"]) == [None]
    before = [await log_bytes(side, topic) for side in clients]
    names = await reversible(east, west, link, "west->east")
    with pytest.raises(SwitchRefused, match="is saved to"):
        await reverse(east, west, names, "west->east", tmp_path, quiet)
    (about,) = [json.loads(path.read_text()) for path in tmp_path.glob("*/*.json")]
    assert (about["cluster"], about["from_offset"], about["to_offset"]) == (east.cluster_id, 5, 8)
    (saved,) = tmp_path.glob("*/*.log")
    assert [each.value for each in decode_batches(saved.read_bytes())] == [b"east-0", b"east-1", b"east-2"]
    assert [await log_bytes(side, topic) for side in clients] == before
