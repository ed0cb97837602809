"""Where two logs parted, by epochs: against logs that are compared record by record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.client.mirror_calls import EpochEnd
from replicator.mirrors.lineage import ERA, MirrorSource, next_era
from replicator.mirrors.parting import common_end

Log = list[tuple[int, int]]
"""(epoch, what is written) by offset."""


def epoch_end(log: Log, epoch: int) -> EpochEnd:
    """As a leader answers OffsetForLeaderEpoch."""
    epochs = sorted({each for each, _ in log})
    if not epochs or epoch > epochs[-1]:
        return EpochEnd(-1, -1)
    ends = [at for at, (each, _) in enumerate(log) if each > epoch]
    known = [each for each in epochs if each <= epoch]
    return EpochEnd(known[-1] if known else epoch, ends[0] if ends else len(log))


async def parted(owner: Log, copy: Log) -> int | None:
    async def ask_owner(epoch: int) -> EpochEnd:
        return epoch_end(owner, epoch)

    async def ask_copy(epoch: int) -> EpochEnd:
        return epoch_end(copy, epoch)

    return await common_end(copy[-1][0] if copy else -1, len(copy), ask_owner, ask_copy)


runs = st.lists(st.integers(1, 4), max_size=4)


def written(epochs: list[int], lengths: list[int], side: int) -> Log:
    return [(epoch, side) for epoch, length in zip(epochs, lengths, strict=False) for _ in range(length)]


@given(runs, runs, runs)
async def test_it_is_where_the_contents_part(common: list[int], old: list[int], new: list[int]) -> None:
    shared = written(list(range(len(common))), common, 0)
    # The old side goes on in the epoch that it has and counts by ones; the new one begins an era.
    last = max(len(common) - 1, 0)
    old_side = shared + written(list(range(last, last + 4)), old, 1)
    new_side = shared + written([next_era(last) + n for n in range(1, 5)], [1, *new], 2)
    assert await parted(new_side, old_side) == len(shared)


async def test_a_copy_without_batches_agrees_with_everything() -> None:
    assert await parted([(3, 0)], []) == 0


async def test_an_owner_that_knows_only_older_epochs_is_another_log() -> None:
    assert await parted([(1, 0), (1, 0)], [(4, 0)]) is None


@pytest.mark.parametrize(("epoch", "era"), [(0, ERA), (ERA - 1, ERA), (ERA, 2 * ERA), (ERA + 105, 2 * ERA)])
def test_eras(epoch: int, era: int) -> None:
    assert next_era(epoch) == era


def test_the_source_of_a_mirror_is_read_as_it_is_written() -> None:
    source = MirrorSource.of("east->west", "cluster", bytes(range(16)))
    assert MirrorSource.read(source.text) == source
    assert MirrorSource.read("somebody's own words") is None
