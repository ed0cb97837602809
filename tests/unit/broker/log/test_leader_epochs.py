"""Leader epochs: which wrote an offset, where one ended, what is left after a cut."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log.leader_epochs import LeaderEpochs


@pytest.fixture
def epochs(tmp_path: Path) -> LeaderEpochs:
    made = LeaderEpochs(str(tmp_path / "leader-epoch-checkpoint"))
    for epoch, start in [(0, 0), (2, 10), (5, 30)]:
        made.assign(epoch, start)
    return made


@pytest.mark.parametrize(
    ("asked", "answer"),
    [(-1, (-1, -1)), (0, (0, 10)), (1, (0, 10)), (2, (2, 30)), (4, (2, 30)), (5, (5, 44)), (6, (-1, -1))],
)
def test_end_of_an_epoch(epochs: LeaderEpochs, asked: int, answer: tuple[int, int]) -> None:
    assert epochs.end_offset(asked, 44) == answer


def test_an_epoch_below_all_known_ended_where_the_first_began(tmp_path: Path) -> None:
    epochs = LeaderEpochs(str(tmp_path / "c"))
    epochs.assign(7, 100)
    assert epochs.end_offset(3, 200) == (3, 100)
    assert epochs.end_offset(7, 200) == (7, 200)


def test_unknown_without_entries(tmp_path: Path) -> None:
    epochs = LeaderEpochs(str(tmp_path / "c"))
    assert epochs.end_offset(0, 10) == (-1, -1)
    assert epochs.latest == epochs.epoch_at(0) == -1


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (9, 0), (10, 2), (29, 2), (30, 5), (99, 5)])
def test_who_wrote_an_offset(epochs: LeaderEpochs, offset: int, epoch: int) -> None:
    assert epochs.epoch_at(offset) == epoch


def test_the_file_is_kafkas_and_is_read_back(tmp_path: Path, epochs: LeaderEpochs) -> None:
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n2 10\n5 30\n"
    again = LeaderEpochs(str(tmp_path / "leader-epoch-checkpoint"))
    again.load()
    assert again.entries() == epochs.entries()
    assert again.latest == 5


def test_truncation_forgets_what_is_not_there_any_more(epochs: LeaderEpochs) -> None:
    epochs.truncate_end(30)
    assert epochs.entries() == [(0, 0), (2, 10)]
    assert epochs.latest == 2
    epochs.truncate_start(12)
    assert epochs.entries() == [(2, 12)]
    epochs.clear()
    assert epochs.latest == -1


def test_a_new_epoch_replaces_what_contradicts_it(epochs: LeaderEpochs) -> None:
    epochs.assign(3, 20)
    assert epochs.entries() == [(0, 0), (2, 10), (3, 20)]


def test_nothing_changes_when_the_disk_refuses(tmp_path: Path) -> None:
    epochs = LeaderEpochs(str(tmp_path / "gone" / "c"))
    with pytest.raises(FileNotFoundError):
        epochs.assign(1, 0)
    assert epochs.entries() == []
    assert epochs.latest == -1


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50)), max_size=20))
def test_epochs_and_starts_always_rise(scratch: Path, assigned: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(str(scratch / "c"))
    for epoch, start in assigned:
        epochs.note(epoch, start)
        found = epochs.entries()
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(found))
        assert epochs.latest == found[-1][0]


def test_an_opened_log_leaves_the_file_alone_until_something_is_new(
    tmp_path: Path, epochs: LeaderEpochs
) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    inode = path.stat().st_ino
    again = LeaderEpochs(str(path))
    again.load()
    again.trim(0, 30)
    assert again.entries() == [(0, 0), (2, 10)]
    assert again.latest == 2
    again.assign(5, 30)  # the same as the file holds: not written
    assert path.stat().st_ino == inode
    assert again.entries() == epochs.entries()
    again.trim(0, 30)
    again.assign(6, 30)
    assert path.read_text() == "0\n3\n0 0\n2 10\n6 30\n"


def test_a_trimmed_file_is_written_when_the_log_goes_on_elsewhere(
    tmp_path: Path, epochs: LeaderEpochs
) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    epochs.trim(12, 30)
    assert epochs.entries() == [(2, 12)]
    assert path.read_text() == "0\n3\n0 0\n2 10\n5 30\n"
    epochs.truncate_end(30)  # nothing to cut: the file may stay as it is
    epochs.truncate_start(20)
    assert path.read_text() == "0\n1\n2 20\n"


def test_a_term_without_a_record_counts_as_one_that_starts_at_the_end(tmp_path: Path) -> None:
    epochs = LeaderEpochs(str(tmp_path / "leader-epoch-checkpoint"))
    epochs.begin(5)
    assert (epochs.current, epochs.latest) == (5, -1)
    assert [epochs.end_offset(epoch, 0) for epoch in (3, 5, 6)] == [(3, 0), (5, 0), (-1, -1)]
    epochs.assign(5, 0)
    epochs.begin(7)
    assert [epochs.end_offset(epoch, 10) for epoch in (5, 6, 7, 8)] == [(5, 10), (5, 10), (7, 10), (-1, -1)]
    # Somebody else led after it: nothing of term 7 was ever written.
    epochs.assign(9, 10)
    assert epochs.current == 9
    assert epochs.end_offset(7, 20) == (5, 10)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.data())
def test_recovery_from_anywhere_leaves_each_epoch_where_it_began(
    scratch: Path, steps: list[int], data: st.DataObject
) -> None:
    """A batch at each offset; the file may lack what came last, and hold what a cut took off."""
    history = list(enumerate(itertools.accumulate(steps)))
    began: dict[int, int] = {}
    for offset, epoch in history:
        began.setdefault(epoch, offset)
    point = data.draw(st.integers(0, len(history) - 1), "recovery point")
    known = [(epoch, start) for epoch, start in began.items() if start < point]
    known += [entry for entry in began.items() if entry not in known][
        : data.draw(st.integers(0, 3), "stored behind")
    ]
    epochs = LeaderEpochs(str(scratch / "c"))
    for epoch, start in [*known, (100, len(history))][: data.draw(st.integers(len(known), len(known) + 1))]:
        epochs._put(epoch, start)
    for offset, epoch in history[point:]:
        epochs.note(epoch, offset)
    epochs.trim(0, len(history))
    assert epochs.entries() == list(began.items())
