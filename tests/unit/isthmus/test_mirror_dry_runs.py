"""A dry run ends as the run would: 3 where records are lost or cut off, or where nobody can tell."""

from typing import Any

import pytest
from typer.testing import CliRunner

from isthmus.commands import mirrors
from isthmus.commands.mirror_tables import Standing
from replicator.mirrors.assessing import Risk
from replicator.mirrors.left_behind import LeftBehind
from replicator.mirrors.reversing import Parting

LINK = "east->west"


def ended(monkeypatch: pytest.MonkeyPatch, command: str, found: Any) -> int:
    """The exit code where asking finds this."""
    monkeypatch.setattr(mirrors, "link_of", lambda *_, **__: (None, None))
    monkeypatch.setattr(mirrors, "_back", lambda *_: None)
    monkeypatch.setattr(mirrors, "target_only", lambda asked: asked)
    monkeypatch.setattr(mirrors, "run_connectors", lambda work, asked: found)
    return CliRunner().invoke(mirrors.app, [command, LINK, "--dry-run"]).exit_code


@pytest.mark.parametrize(
    ("records", "counted", "code"), [(0, "now", 0), (7, "now", 3), (0, "4.0 s ago", 3), (None, "never", 3)]
)
def test_a_failover(monkeypatch: pytest.MonkeyPatch, records: int | None, counted: str, code: int) -> None:
    level = Risk("t", 0, 10, 10, 0, 0.0, 0, "now")
    other = Risk("t", 1, 10, 10, records, None, 0, counted)
    assert ended(monkeypatch, "failover", Standing([level, other], LeftBehind(), [], [], {}, {})) == code


def test_a_failover_that_leaves_a_topic_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    level, there = Risk("t", 0, 10, 10, 0, 0.0, 0, "now"), {"u": "writable at the target"}
    assert ended(monkeypatch, "failover", Standing([level], LeftBehind(("late",)), [], [], {}, {})) == 3
    assert ended(monkeypatch, "failover", Standing([level], LeftBehind(apart=there), [], [], {}, {})) == 0


def test_a_promotion_copies_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Standing([Risk("t", 0, 3, 10, 7, 1.0, 0, "now")], LeftBehind(), [], [], {}, {})
    assert ended(monkeypatch, "promote", found) == 0


@pytest.mark.parametrize("command", ["reverse", "truncate-and-restore"])
@pytest.mark.parametrize(("cut", "code"), [(0, 0), (3, 3)])
def test_a_way_back(monkeypatch: pytest.MonkeyPatch, command: str, cut: int, code: int) -> None:
    assert (
        ended(monkeypatch, command, [Parting("t", n, 5, 5 + n * cut, 9, n * cut, None) for n in (0, 1)])
        == code
    )
