"""Every target with its corpus and with some random damage; `make fuzz` goes on for as long as one likes."""

import importlib
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import batches, dispatcher, log_directory, requests
from tests.fuzz.corpus import TARGETS, inputs

IN_MEMORY = settings(max_examples=300, suppress_health_check=list(HealthCheck))
ON_DISK = settings(max_examples=60, suppress_health_check=list(HealthCheck))
ON_A_SOCKET = settings(max_examples=60, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module", autouse=True)
def broker_of_the_target() -> Iterator[None]:
    yield
    dispatcher.close()


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_is_handled(target: str) -> None:
    one = importlib.import_module(f"tests.fuzz.{target}").one
    paths = inputs(target)
    assert paths, "there is a corpus"
    for path in paths:
        try:
            one(path.read_bytes())
        except Exception as error:
            raise AssertionError(f"{target}: {path.name}") from error


def damaged(target: str) -> st.SearchStrategy[bytes]:
    """An input of the corpus with a few bytes overwritten, taken out or put in."""
    edit = st.tuples(st.integers(0, 1 << 16), st.integers(0, 8), st.binary(max_size=8))
    return st.builds(_edited, st.sampled_from([path.read_bytes() for path in inputs(target)]), st.lists(edit))


def _edited(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    made = bytearray(data)
    for place, out, new in edits:
        at = place % (len(made) + 1)
        made[at : at + out] = new
    return bytes(made)


@IN_MEMORY
@given(damaged("requests"))
def test_requests(data: bytes) -> None:
    requests.one(data)


@IN_MEMORY
@given(damaged("batches"))
def test_batches(data: bytes) -> None:
    batches.one(data)


@ON_DISK
@given(st.builds(lambda head, hits: head + b"".join(hits), st.sampled_from((b"\0", b"\1")), st.lists(
    st.builds(
        lambda name, kind, place, new: bytes((name, kind)) + place.to_bytes(3, "big") + new,
        st.integers(0, 255), st.integers(0, 5), st.integers(0, 6000), st.binary(min_size=7, max_size=7),
    ), min_size=1, max_size=6,
)))  # fmt: skip
def test_log_directory(data: bytes) -> None:
    log_directory.one(data)


@ON_A_SOCKET
@given(damaged("dispatcher"))
def test_dispatcher(data: bytes) -> None:
    dispatcher.one(data)


def test_the_log_target_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that throws a good segment away is noticed."""
    monkeypatch.setattr("broker.log.loading.scan.sound_batches", lambda *_: iter(()))
    with pytest.raises(AssertionError, match="is lost"):
        log_directory.one(b"\0" + bytes((255, 5, 0, 0, 0)) + bytes(7))
