"""One token for all connections, another one in time, trouble with its source that nobody else notices."""

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.client.errors import TokenError
from protocol.client.oauth import keeping
from protocol.client.oauth.bearer import Token
from protocol.client.oauth.keeping import Refreshing, Tokens
from protocol.client.oauth.sources import FileToken


class Clock:
    """Time as `keeping` sees it, moved by hand."""

    def __init__(self):
        self.now = 1000.0

    def time(self):
        return self.now

    monotonic = time


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(keeping, "time", clock)
    return clock


class Provider:
    """A source whose tokens hold for `lifetime_s`; `failing` is raised instead."""

    def __init__(self, clock, lifetime_s=100.0):
        self.clock, self.lifetime_s = clock, lifetime_s
        self.asked = 0
        self.failing = None
        self.gate = None

    def __call__(self, host):
        self.asked += 1
        if self.gate is not None:
            self.gate.wait(10)
        if self.failing is not None:
            raise self.failing
        now = self.clock.time()
        return Token(f"t{self.asked}", begins=now, ends=now + self.lifetime_s)


AT_80 = Refreshing(window_jitter=0, backoff_s=1, longest_backoff_s=10)


async def shown(tokens):
    return (await tokens.current("broker")).text


def test_a_token_is_due_after_eight_tenths_of_its_time():
    hour = Token("t", begins=0, ends=3600)
    assert Refreshing().due(hour, 0, 0) == 2880
    assert Refreshing().due(hour, 0, 1) == pytest.approx(2880 + 180)
    ten_minutes = Token("t", begins=0, ends=600)
    assert Refreshing().due(ten_minutes, 0, 0) == 300  # five minutes before its end
    assert Refreshing(buffer_s=0).due(ten_minutes, 0, 0) == 480
    assert Refreshing().due(Token("t", begins=0, ends=60), 0, 0) == 48
    late = Token("t", begins=-3500, ends=3600)
    assert Refreshing(window_factor=0.5, buffer_s=0).due(late, 3400, 0) == 3460  # min.period


@given(st.floats(0, 1e6), st.floats(-1e6, 1e6), st.floats(0, 1))
def test_it_is_never_due_after_its_end_but_for_one_burst(begins, left, chance):
    token = Token("t", begins=begins, ends=begins + left)
    due = Refreshing(window_factor=1.0, window_jitter=0.25).due(token, begins, chance)
    assert begins + 1 <= due <= max(begins + 1, begins + left)


async def test_all_share_one_until_it_is_due(clock):
    provider = Provider(clock)
    tokens = Tokens(provider, AT_80)
    assert set(await asyncio.gather(*(shown(tokens) for _ in range(20)))) == {"t1"}
    clock.now += 79
    assert await shown(tokens) == "t1"
    clock.now += 2
    assert set(await asyncio.gather(*(shown(tokens) for _ in range(20)))) == {"t2"}
    assert provider.asked == 2


async def test_while_one_holds_trouble_with_the_next_is_a_line_in_the_log(clock, caplog):
    provider = Provider(clock)
    tokens = Tokens(provider, AT_80)
    assert await shown(tokens) == "t1"
    provider.failing = TokenError("no token from x: HTTP 503", "look")
    clock.now += 85
    assert await shown(tokens) == "t1"
    assert await shown(tokens) == "t1"
    assert provider.asked == 2  # spared
    assert "no token from x: HTTP 503; look; the token at hand holds for another 15 s" in caplog.text
    clock.now += 1.5
    assert await shown(tokens) == "t1"
    assert provider.asked == 3
    clock.now += 20
    with pytest.raises(TokenError, match="HTTP 503"):
        await shown(tokens)
    with pytest.raises(TokenError, match="HTTP 503"):
        await shown(tokens)
    assert provider.asked == 4
    provider.failing = None
    clock.now += 10
    assert await shown(tokens) == "t5"


def test_pauses_grow_and_are_bounded():
    assert [Refreshing().pause(count) for count in (1, 2, 3, 8, 500)] == [0.1, 0.2, 0.4, 10, 10]


async def test_a_source_that_is_slow_costs_a_connection_a_second_and_its_answer_counts(clock, monkeypatch):
    monkeypatch.setattr(keeping, "_PATIENCE_S", 0.05)
    provider = Provider(clock)
    tokens = Tokens(provider, AT_80)
    assert await shown(tokens) == "t1"
    clock.now += 85
    provider.gate = threading.Event()
    assert await shown(tokens) == "t1"
    assert await shown(tokens) == "t1"
    assert provider.asked == 2  # one asks, however many wait
    provider.gate.set()
    while tokens._asking is not None:
        await asyncio.sleep(0)
    assert await shown(tokens) == "t2"
    assert provider.asked == 2


async def test_who_gives_up_leaves_the_next_one_free(clock):
    provider = Provider(clock)
    provider.gate = threading.Event()
    tokens = Tokens(provider, AT_80)
    waiting = asyncio.create_task(shown(tokens))
    while not provider.asked:
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    provider.gate.set()
    assert await shown(tokens) == "t1"
    assert provider.asked == 1


async def test_one_that_was_taken_before_and_is_refused_is_forgotten(clock):
    tokens = Tokens(Provider(clock), AT_80)
    first = await tokens.current("broker")
    assert not tokens.refused(first)  # wrong from the start: another one would be no better
    second = await tokens.current("broker")
    assert second.text == "t2"
    tokens.accepted(second)
    assert tokens.refused(second)
    assert await shown(tokens) == "t3"


async def test_a_file_that_has_been_replaced_is_read_again(tmp_path):
    """Strimzi's issue 11002: a token in a file ended, and the mirror stopped for good."""
    file = tmp_path / "token"
    tokens = Tokens(FileToken(str(file)), AT_80, str(file))
    with pytest.raises(TokenError, match=r"token: No such file or directory; look at the path"):
        await shown(tokens)
    file.write_text("first\n")
    await asyncio.sleep(AT_80.pause(1))
    assert await shown(tokens) == "first"
    file.write_text("second")
    assert await shown(tokens) == "second"
    file.write_text("half a tok")
    with pytest.raises(TokenError, match="is no token") as error:
        await shown(tokens)
    assert "half" not in str(error.value)


async def test_a_silent_source_does_not_hold_the_loop(clock):
    provider = Provider(clock)
    provider.gate = threading.Event()
    tokens = Tokens(provider, AT_80)
    waiting = asyncio.create_task(shown(tokens))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    provider.gate.set()
    assert await waiting == "t1"


async def test_a_fault_of_a_library_is_trouble_with_the_source_and_its_words_are_not_shown(clock):
    def broken(host):
        raise KeyError("hunter2")

    with pytest.raises(TokenError, match="no token from AWS: KeyError; look") as error:
        await Tokens(broken, AT_80, "AWS").current("broker")
    assert "hunter2" not in str(error.value)
