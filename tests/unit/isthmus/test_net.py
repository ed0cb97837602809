"""`isthmus net`: what it says when it cannot do what was asked."""

from pathlib import Path

import pytest

from isthmus.cli import LazyCommands

STRETCHED = """
version: 1
name: t
data_directory: d
datacenters: { a: {}, b: {} }
network: { default: { delay: 1ms } }
clusters: { main: { datacenter: a, brokers: [{ id: 1 }, { id: 2, datacenter: b }] } }
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "t.yaml"
    path.write_text(STRETCHED)
    return str(path)


def net(*words: str) -> int:
    code = LazyCommands._load("net").main(args=list(words), prog_name="isthmus net", standalone_mode=False)
    return int(code or 0)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("cut",), 2, "say which links: --site NAME, or --from and --to"),
        (("set", "--from", "a"), 2, "nothing to set: say --delay, --jitter, --loss or --bandwidth"),
        (("set", "--delay", "10"), 2, "'10' is not a time: say us, ms or s"),
        (("set", "--loss", "200%"), 2, "is not a share of what is sent"),
        (("heal", "--site", "a", "--from", "b"), 2, "leave --from and --to out"),
        (("show",), 1, "start it with isthmus up"),
        (("addresses",), 1, "start topology 't' first"),
    ],
)
def test_what_cannot_be_done_is_said(
    file: str, words: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert net(words[0], file, *words[1:]) == code
    assert said in capsys.readouterr().err


def test_a_topology_without_a_network_has_no_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(STRETCHED.replace("network: { default: { delay: 1ms } }\n", ""))
    for command in ("show", "heal", "addresses", "run"):
        assert net(command, str(path)) == 2
        assert "has no network section" in capsys.readouterr().err
