"""Replicas that differ are named, however their segments are cut."""

from pathlib import Path

import pytest

from tests.chaos import replicas
from tests.chaos.history import Place
from tests.chaos.replicas import differences

PLACE = Place("t", 0)


def logs_of(directory: Path, *all_segments: tuple[bytes, ...]) -> dict[int, Path]:
    """The segments of each replica."""
    logs = {}
    for number, segments in enumerate(all_segments, 1):
        logs[number] = directory / str(number)
        (logs[number] / "t-0").mkdir(parents=True)
        for base, data in enumerate(segments):
            (logs[number] / "t-0" / f"{base:020}.log").write_bytes(data)
    return logs


def test_equal_though_cut_differently(tmp_path: Path) -> None:
    assert differences(logs_of(tmp_path, (b"ab", b"c"), (b"abc",), (b"a", b"bc")), [PLACE]) == []


def test_one_byte_differs(tmp_path: Path) -> None:
    (found,) = differences(logs_of(tmp_path, (b"abc",), (b"abd",), (b"abc",)), [PLACE])
    assert found.startswith("t-0: ")


def test_what_is_behind_is_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "_BEHIND_S", 0.0)
    assert differences(logs_of(tmp_path, (b"abc",), (b"a", b"b"), (b"abc",)), [PLACE]) == []
    (found,) = differences(logs_of(tmp_path / "2", (b"abc",), (b"ax",), (b"abc",)), [PLACE])
    assert "first 2 bytes" in found
