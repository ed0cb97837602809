"""What the pages name is there: files, make targets, modules that are run, commands and their options.

And the other way round: the map of files in a package's README names every module.
"""

import importlib.util
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from isthmus.cli import COMMANDS, LazyCommands

ROOT: Final = Path(__file__).parents[3]
FOLDERS: Final = sorted(
    each.name for each in ROOT.iterdir() if each.is_dir() and each.name[0] != "." and each.name != "build"
)
FILES: Final = sorted(
    str(path.relative_to(ROOT))
    for path in (*ROOT.iterdir(), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*")))
    if path.is_file()
)
PAGES: Final = [path for path in FILES if path.endswith(".md")]
FOREIGN: Final = {"kafka.sh", "kafka-acls.sh", "test/service.py"}
"""Files of Kafka, of kafka-python and of the tools that start them."""
UNMAPPED: Final = ("tests/", "tools/", "protocol/messages/")
_PATH: Final = re.compile(r"(?:[\w.*-]+/)*[\w.*-]+\.(?:py|md|yaml|toml|java|c|txt|sh)|(?:[\w.-]+/)+")


@cache
def pieces(page: str) -> list[str]:
    """What a page writes as code: between backticks, and lines of indented or fenced blocks."""
    found, fenced = [], False
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            found.append(line.strip())
        else:
            found += re.findall(r"`([^`\n]+)`", line)
    return found


def is_there(named: str, page: str) -> bool:
    if "*" in named:
        return any(Path(path).match(named) for path in FILES)
    if named.endswith("/"):
        return any(f"/{path}".find(f"/{named}") >= 0 for path in FILES)
    beside = (ROOT / page).parent / named
    return beside.exists() or any(f"/{path}".endswith(f"/{named}") for path in FILES)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", text)
    assert [to for to in links if not (ROOT / page).parent.joinpath(to).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_exist(page: str) -> None:
    words = {word.strip("'\"(),;:") for piece in pieces(page) for word in piece.split()}
    named = {word for word in words if _PATH.fullmatch(word) and not word.startswith("build/")}
    assert sorted(word for word in named - FOREIGN if not is_there(word, page)) == []


@pytest.mark.parametrize("page", PAGES)
def test_targets_of_make_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    called = {
        word
        for piece in pieces(page)
        for words in re.findall(r"^make ([a-z -]+)", piece)
        for word in words.split()
    }
    assert called <= targets


@pytest.mark.parametrize("page", PAGES)
def test_modules_that_are_run_exist(page: str) -> None:
    modules = {name for piece in pieces(page) for name in re.findall(r"python -m ([\w.]+)", piece)}
    ours = {name for name in modules if name.split(".")[0] in FOLDERS}
    assert sorted(name for name in ours if importlib.util.find_spec(name) is None) == []


@cache
def command(name: str) -> Any:
    return LazyCommands._load(name)


def unknown(words: list[str]) -> Iterator[str]:
    """What of `isthmus WORDS` is not there."""
    if words[0] not in COMMANDS:
        yield words[0]
        return
    found, at = command(words[0]), 1
    while hasattr(found, "commands") and at < len(words) and re.fullmatch(r"[a-z-]+", words[at]):
        if words[at] not in found.commands:
            yield " ".join(words[: at + 1])
            return
        found, at = found.commands[words[at]], at + 1
    known = {name for each in found.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}
    for word in words[at:]:
        option = re.match(r"--?[a-z][a-z-]*", word)
        if option and option[0] not in known:
            yield f"{' '.join(words[:at])} {option[0]}"


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])  # of each version's time
def test_commands_and_their_options_exist(page: str) -> None:
    called = re.compile(r"(?:(?<![\w./-])|bin/)isthmus ([a-z][^|>#&;]*)")
    lines = {line for piece in pieces(page) for line in called.findall(piece)}
    assert sorted(one for line in lines for one in unknown(shlex.split(line.replace("'", "")))) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.endswith("/README.md")])
def test_the_map_of_a_package_names_every_module(page: str) -> None:
    folder = page.removesuffix("README.md")
    within = [other.removesuffix("README.md") for other in PAGES if other.endswith("/README.md")]
    deeper = tuple(other for other in within if other != folder and other.startswith(folder))
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [
        path
        for path in map(Path, FILES)
        if path.suffix == ".py"
        and path.stem[:2] != "__"
        and f"{path}".startswith(folder)
        and not f"{path}".startswith((*deeper, *UNMAPPED))
        and path.stem not in text
        and f"{path.parent.name}/" not in text
    ] == []
