"""Origin headers: no record comes back to a cluster where it has been, and nothing else of it changes."""

from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from protocol.records import Codec, Record, build_batch, decode_batches
from protocol.records.header import iter_headers
from protocol.types import TopicPartition
from replicator.dedicated import circles
from replicator.naming import Naming
from replicator.origin import ORIGIN_HEADER, Origin, OriginSink, Place, hops
from replicator.settings import LinkSettings
from transfer.endpoint import Chunk, TransferError
from transfer.ledger import Copied
from transfer.rewrite import plan

TP = TopicPartition("t", 0)


def chunk(*batches, first=0):
    buf = memoryview(b"".join(batches))
    end = max((header.next_offset for _, header in iter_headers(buf)), default=first)
    return Chunk(TP, buf, first, end)


def data(records, **options):
    return build_batch(records, preserve_offsets=True, **options)


def rec(offset, *way, value=b"v", headers=()):
    own = [(ORIGIN_HEADER, ",".join(f"{one}/t" for one in way).encode())] if way else []
    return Record(offset, 1000 + offset, b"k", value, [*headers, *own])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_records_get_one_hop_more_and_keep_everything_else(codec):
    kept = [("a", b"1"), ("a", None), ("", b"")]
    given_ = chunk(
        data([rec(5, headers=kept), rec(6, "x", value=None)], codec=codec, leader_epoch=3), first=5
    )
    out = Origin("east", "west").apply(given_).chunk
    (header,) = (header for _, header in iter_headers(out.batches))
    assert (header.codec, header.leader_epoch, header.base_offset, out.next_offset) == (codec, 3, 5, 7)
    first, second = decode_batches(out.batches)
    assert first == Record(5, 1005, b"k", b"v", [*kept, (ORIGIN_HEADER, b"east/t")])
    assert (second.value, hops(second)) == (None, (("x", "t"), ("east", "t")))


def test_what_has_been_at_the_target_is_left_out_as_a_hole():
    given_ = chunk(data([rec(0, "west"), rec(1), rec(2, "a", "west"), rec(3)]), data([rec(4, "west")]))
    stamped = Origin("east", "west").apply(given_)
    outs, refusal = plan(stamped.chunk)
    assert refusal is None
    assert stamped.left_out == [0, 2, 4]
    assert [stamped.left_out_before(offset) for offset in (0, 1, 2, 3, 5)] == [0, 1, 1, 2, 3]
    assert [out.sources for out in outs] == [((1, 1), (3, 1))]


def test_markers_stay_and_damage_is_refused_not_passed_on():
    marker = data([Record(0, 0, b"\0\0\0\1", b"\0" * 6)], control=True, producer_id=7, transactional=True)
    good, bad = data([rec(1)]), bytearray(data([rec(2)]))
    bad[-1] ^= 1
    out = Origin("east", "west").apply(chunk(marker, good, bytes(bad))).chunk
    outs, refusal = plan(out)
    assert [out.sources for out in outs] == [((1, 1),)]
    assert refusal is not None
    assert refusal.offset == 2


def test_a_batch_that_cannot_be_decoded_never_goes_on_unstamped():
    whole = data([rec(0)])
    pos, header = next(iter_headers(memoryview(whole)))
    assert pos == 0
    broken = build_batch([rec(0)], codec=Codec.NONE)
    garbled = bytearray(broken)
    garbled[61] = 0x7F  # the record says that it is longer than the batch
    garbled[17:21] = crc32c(bytes(garbled[21:])).to_bytes(4)
    outs, refusal = plan(Origin("east", "west").apply(chunk(bytes(garbled))).chunk)
    assert (outs, refusal is not None) == ([], True)
    assert header.record_count == 1


def test_what_an_application_makes_of_a_mirrored_record_is_new_in_its_own_topic():
    """Kafka Streams hands headers on: only a record put back into the topic that it came from is left out."""
    there, back = Origin("east", "west"), Origin("west", "east")
    mirrored = there.stamped(Record(0, 1, b"k", b"order", []), "orders")
    enriched = back.stamped(Record(7, 2, b"k", b"enriched", mirrored.headers), "enriched")
    assert hops(enriched) == (("east", "orders"), ("west", "enriched"))
    assert back.stamped(Record(8, 2, b"k", b"put back", mirrored.headers), "orders") is None
    assert there.stamped(replace(enriched, offset=3), "enriched") is None
    again = there.stamped(replace(enriched, offset=4), "orders")
    assert hops(again) == hops(enriched), "a way does not grow for ever"


def test_names_at_the_target_count_and_headers_without_a_topic_say_nothing():
    renamed = Origin("east", "west", Naming("EAST", "WEST").at_target)
    been = [(ORIGIN_HEADER, b"west/EAST.orders")]
    assert renamed.stamped(Record(0, 1, b"k", b"v", been), "orders") is None
    assert renamed.stamped(Record(0, 1, b"k", b"v", been), "EAST.orders") is not None
    assert hops(Record(0, 1, b"k", b"v", [(ORIGIN_HEADER, b"west,a/b/t")])) == (Place("a/b", "t"),)


def test_failback_takes_back_what_the_target_had():
    stamped = Origin("east", "west", ignored=True).apply(chunk(data([rec(0, "west"), rec(1)])))
    assert stamped.left_out == []
    assert [hops(one) for one in decode_batches(stamped.chunk.batches)] == [
        (("west", "t"), ("east", "t")),
        (("east", "t"),),
    ]


async def test_what_is_left_out_is_counted_as_far_as_it_was_acknowledged():
    class Sink:
        broken = False

        async def write(self, tp, given_):
            if self.broken:
                error = TransferError("gone")
                error.copied = Copied((), 2, 0, 0, ())
                raise error
            return Copied((), given_.next_offset, 0, 0, ())

    sink = OriginSink(Sink(), Origin("east", "west"))
    given_ = chunk(data([rec(n, "west") for n in range(5)]), first=1)
    assert (await sink.write(TP, given_)).left_out == 4  # the first was not asked for
    Sink.broken = True
    with pytest.raises(TransferError) as caught:
        await sink.write(TP, given_)
    assert caught.value.copied.left_out == 1


@given(
    st.lists(st.sampled_from(["a>b", "b>a", "b>c", "c>a", "a>c", "c>b"]), unique=True, min_size=1), st.data()
)
def test_nothing_goes_round_in_any_topology_of_identical_names(edges, more):
    links = [Origin(*edge.split(">")) for edge in edges]
    logs = {"a": [], "b": [], "c": []}
    for cluster in logs:
        for number in range(more.draw(st.integers(0, 2))):
            logs[cluster].append(Record(len(logs[cluster]), 0, None, f"{cluster}{number}".encode()))
    born = {cluster: len(log) for cluster, log in logs.items()}
    read = dict.fromkeys(links, 0)
    steps = 0
    while any(read[link] < len(logs[link.source]) for link in links):
        for link in links:
            for record in logs[link.source][read[link] :]:
                copy = link.stamped(record, "t")
                if copy is not None:
                    logs[link.target].append(copy)
            read[link] = len(logs[link.source])
        steps += 1
        assert steps < 20, "it never ends"
    for cluster, log in logs.items():
        assert not [record for record in log[born[cluster] :] if record.value.decode()[0] == cluster]


def link(source, target, **settings):
    ends = {
        side: {"alias": alias, "bootstrap": "x:1"} for side, alias in (("source", source), ("target", target))
    }
    return LinkSettings.model_validate({**ends, "naming": "identity", **settings})


def test_circles_are_named_unless_every_link_of_them_stamps():
    there, back = link("a", "b"), link("b", "a")
    (text,) = circles([there, back])
    assert "a -> b -> a" in text
    stamped = {"origin_headers": True}
    assert len(circles([link("a", "b", **stamped), back])) == 1
    assert circles([link("a", "b", **stamped), link("b", "a", **stamped)]) == []
    ignoring = {**stamped, "origin_headers_ignored": True}
    assert len(circles([link("a", "b", **stamped), link("b", "a", **ignoring)])) == 1
    assert circles([there, link("b", "a", naming="prefix")]) == []
    assert circles([link("hub", one) for one in "abc"]) == []


@pytest.mark.parametrize("stamped", [False, True])
def test_a_mirror_and_a_link_that_copies_it_back_are_a_circle(stamped):
    """A mirror holds its source's batches as they are, so nothing says in them that they were there."""
    mirrors = {"offsets": "identical"}
    assert circles([link("a", "b", **mirrors), link("b", "a", **mirrors)]) == []
    (text,) = circles([link("a", "b", **mirrors), link("b", "a", origin_headers=stamped)])
    assert "a -> b -> a" in text
    assert circles([link("a", "b", **mirrors), link("b", "a", naming="prefix")]) == []
