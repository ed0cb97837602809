"""What MirrorMaker 2's offset syncs are worth: never too far ahead, exact where they can be."""

from hypothesis import given
from hypothesis import strategies as st

from replicator.mirrormaker.history import Copy, CopyMatcher, Pair, chain, history


def copy(offset, value, time=5):
    return Copy(offset, time, b"k", value, ())


def test_equal_distances_are_one_run():
    runs = history([Pair(0, 10), Pair(100, 110), Pair(250, 260)])
    assert [tuple(run) for run in runs] == [(0, 10, 250)]
    assert runs.source_end == 250


def test_a_restart_that_copied_again_takes_its_syncs_back():
    assert chain([Pair(0, 0), Pair(100, 100), Pair(50, 120), Pair(90, 160)]) == [
        Pair(0, 0),
        Pair(50, 120),
        Pair(90, 160),
    ]
    assert chain([Pair(100, 100), Pair(0, 0)]) == [Pair(0, 0)]
    assert history([]).source_end == 0


@st.composite
def copied(draw):
    """(offset at the source, offset at the target) of every record, and the syncs that are left of it."""
    steps = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=60))
    kinds = draw(st.sampled_from(["source", "target"]))  # holes on one side only: see the module
    pairs, up, down = [], 0, 0
    for here, there in steps:
        up += 1 + (here if kinds == "source" else 0)
        down += 1 + (there if kinds == "target" else 0)
        pairs.append(Pair(up, down))
    keep = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    kept = [pair for pair, wanted in zip(pairs, keep, strict=True) if wanted] or pairs[-1:]
    return pairs, kept


@given(copied())
def test_a_translated_position_is_never_behind_the_record(case):
    pairs, kept = case
    runs = history(kept)
    for up, down in pairs:
        if kept[0].upstream <= up < kept[-1].upstream:
            assert runs.to_target(up).offset <= down
    for up, down in kept[:-1]:
        assert runs.to_target(up).offset == down


def test_records_are_recognised_one_by_one_and_strangers_stepped_over():
    matcher = CopyMatcher()
    matcher.there([copy(7, b"a"), copy(8, b"stranger"), copy(9, b"b"), copy(10, b"b", time=6)])
    assert matcher.here(copy(100, b"a"))
    assert matcher.here(copy(103, b"b"))
    assert not matcher.here(copy(104, b"b"))  # the same value at another time is another record
    assert [tuple(run) for run in matcher.runs] == [(100, 7, 1), (103, 9, 1)]


def test_what_is_not_there_ends_it():
    matcher = CopyMatcher(lookahead=2)
    matcher.there(copy(n, b"%d" % n) for n in range(5))
    assert not matcher.here(copy(0, b"4"))
    assert matcher.matched == 0
