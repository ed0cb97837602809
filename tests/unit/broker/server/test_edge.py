"""Connections over real sockets: order, back-pressure, hostile peers, and that nobody else notices."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from broker.server.answer_order import Pending
from broker.server.edge import TOGETHER
from broker.server.intake import START
from broker.server.listener import Listener
from broker.server.outbox import IN_A_TURN, PIECE, Outbox
from tests.support.scripted_server import (
    BOUND_S,
    Dial,
    News,
    Scripted,
    answer,
    closed,
    framed,
    on_uvloop,
    until,
)


@on_uvloop
async def test_pipelined_requests_are_answered_in_order(dial: Dial, script: Scripted) -> None:
    reader, writer = await dial()
    writer.write(b"".join(map(framed, (b"say:a", b"wait:b", b"say:c", b"mute:d", b"wait:e", b"say:f"))))
    assert await answer(reader) == b"a"
    await until(lambda: "b" in script.started)
    assert script.started == ["a", "b"], "nothing overtakes a waiting request"
    script.release("b")
    assert await answer(reader) == b"b"
    assert await answer(reader) == b"c"
    script.release("e")
    assert [await answer(reader), await answer(reader)] == [b"e", b"f"]


@on_uvloop
async def test_requests_that_allow_it_overlap_and_keep_their_order(dial: Dial, script: Scripted) -> None:
    reader, writer = await dial()
    writer.write(b"".join(map(framed, (b"over:a", b"over:b", b"say:c", b"wait:d", b"say:e"))))
    await until(lambda: "d" in script.started)
    assert script.started == ["a", "b", "c", "d"]
    for name in ("d", "b", "a"):
        script.release(name)
    assert [await answer(reader) for _ in range(5)] == [b"a", b"b", b"c", b"d", b"e"]


@on_uvloop
async def test_an_answer_that_waits_for_news_is_tried_for_until_it_is_there(
    dial: Dial, script: Scripted
) -> None:
    reader, writer = await dial()
    writer.write(b"".join(map(framed, (b"say:a", b"news:b", b"say:c"))))
    assert await answer(reader) == b"a"
    await until(lambda: "b" in script.news)
    news = script.news["b"]
    news.wake()
    assert (news.attempts, script.started) == (1, ["a", "b"]), "nothing overtakes it"
    script.outcomes["b"] = lambda: [framed(b"b")]
    news.wake()
    assert [await answer(reader), await answer(reader)] == [b"b", b"c"]
    news.wake()
    assert news.attempts == 2, "what is answered is not tried for again"


@on_uvloop
async def test_news_may_lead_to_more_waiting_of_either_kind(dial: Dial, script: Scripted) -> None:
    """E.g. records that came are on the disk alone by now; then there are too few of them."""
    reader, writer = await dial()
    writer.write(b"".join(map(framed, (b"news:a", b"say:last"))))
    await until(lambda: "a" in script.news)
    other = News(script, "other")
    script.outcomes["a"] = lambda: Pending(hand_over(other))
    script.news["a"].wake()
    await until(lambda: hasattr(other, "wake"))
    script.outcomes["other"] = lambda: [framed(b"there")]
    other.wake()
    assert [await answer(reader), await answer(reader)] == [b"there", b"last"]


async def hand_over(other: News) -> News:
    await asyncio.sleep(0.01)
    return other


@on_uvloop
async def test_an_attempt_that_fails_takes_no_earlier_answer_with_it(dial: Dial, script: Scripted) -> None:
    reader, writer = await dial()
    writer.write(b"".join(map(framed, (b"over:a", b"news:b", b"say:c"))))
    await until(lambda: "b" in script.news)

    def broken() -> None:
        raise RuntimeError("a handler broke")

    script.outcomes["b"] = broken
    script.news["b"].wake()
    script.release("a")
    assert await answer(reader) == b"a"
    assert await closed(reader)


@on_uvloop
async def test_nobody_waits_for_news_for_a_client_that_has_gone(
    dial: Dial, script: Scripted, listener: Listener
) -> None:
    _, writer = await dial()
    writer.write(framed(b"news:a"))
    await until(lambda: "a" in script.news)
    writer.transport.abort()
    await until(lambda: not listener.connections)
    assert script.abandoned == ["a"]
    script.news["a"].wake()
    assert not script.news["a"].attempts


@on_uvloop
async def test_large_answers_are_not_made_ahead_of_one_that_waits(dial: Dial, script: Scripted) -> None:
    """A client that lets one answer wait may not have the broker hold megabytes of others for it (I11)."""
    reader, writer = await dial()
    size = 1_000_000
    writer.write(framed(b"over:first") + b"".join(framed(b"big:%d" % size) for _ in range(20)))
    await until(lambda: len(script.started) > 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert script.started == ["first", str(size)]
    script.release("first")
    assert await answer(reader) == b"first"
    for _ in range(20):
        await reader.readexactly(4 + size)


@pytest.mark.parametrize(
    "offence", [framed(b"nonsense"), (-5).to_bytes(4, "big", signed=True) + bytes(100_000)]
)
@on_uvloop
async def test_what_was_asked_before_an_offence_is_answered(
    dial: Dial, script: Scripted, offence: bytes
) -> None:
    """Kafka serves a connection's requests one by one: it has answered before it sees the offence."""
    reader, writer = await dial()
    writer.write(framed(b"over:a") + framed(b"over:b") + offence + framed(b"say:never"))
    await until(lambda: "b" in script.started)
    script.release("b")
    script.release("a")
    assert [await answer(reader), await answer(reader)] == [b"a", b"b"]
    assert await closed(reader)
    assert "never" not in script.started


@on_uvloop
async def test_a_handler_that_fails_takes_no_earlier_answer_with_it(dial: Dial, script: Scripted) -> None:
    reader, writer = await dial()
    writer.write(b"".join(map(framed, (b"over:a", b"fail:x", b"say:never"))))
    await until(lambda: "x" in script.started)
    for _ in range(5):
        await asyncio.sleep(0)
    writer.write(framed(b"say:never"))
    await writer.drain()
    script.release("a")
    assert await answer(reader) == b"a"
    assert await closed(reader)
    assert "never" not in script.started


@on_uvloop
async def test_the_last_answer_waits_for_its_turn(dial: Dial, script: Scripted) -> None:
    reader, writer = await dial()
    writer.write(b"".join(map(framed, (b"over:a", b"last:b", b"say:never"))))
    await until(lambda: "b" in script.started)
    script.release("b")
    for _ in range(5):
        await asyncio.sleep(0)
    script.release("a")
    assert [await answer(reader), await answer(reader)] == [b"a", b"b"]
    assert await closed(reader)
    assert "never" not in script.started


def long_requests(count: int) -> bytes:
    return b"".join(framed(b"long:%d|" % number + bytes(70_000)) for number in range(count))


@on_uvloop
async def test_requests_that_came_together_are_answered_together(
    dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write wakes the client, which costs more than serving a request; and nobody waits for a next one."""
    writes: list[int] = []
    write = Outbox.write

    def counted(outbox: Outbox, segments: list[Any]) -> bool:
        writes.append(len(segments))
        return write(outbox, segments)

    monkeypatch.setattr(Outbox, "write", counted)
    reader, writer = await dial()
    for count in (3, 1, 9):
        writes.clear()
        writer.write(long_requests(count))
        assert [await answer(reader) for _ in range(count)] == [b"%d" % number for number in range(count)]
        assert sum(writes) == count
        assert count == 1 or len(writes) < count
        assert max(writes) <= TOGETHER // 70_000 + 1, "some of the answers leave while others are made"


@on_uvloop
async def test_a_client_that_stops_sending_gets_all_its_answers(dial: Dial) -> None:
    reader, writer = await dial()
    writer.write(long_requests(3))
    writer.write_eof()
    assert [await answer(reader) for _ in range(3)] == [b"0", b"1", b"2"]
    assert await closed(reader)


@on_uvloop
async def test_frames_in_pieces_of_one_byte(dial: Dial) -> None:
    reader, writer = await dial()
    for byte in framed(b"say:slow"):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    assert await answer(reader) == b"slow"


@pytest.mark.parametrize(
    "attack",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        (2**31 - 1).to_bytes(4, "big") + b"x",
        (-5).to_bytes(4, "big", signed=True),
        framed(b"nonsense"),
        framed(b"fail:x"),
        os.urandom(4096),
    ],
    ids=["http", "huge", "negative", "refused", "broken-handler", "random"],
)
@on_uvloop
async def test_a_hostile_frame_costs_its_own_connection_only(
    dial: Dial, attack: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    good_reader, good_writer = await dial()
    reader, writer = await dial()
    with caplog.at_level(logging.WARNING, "isthmus.broker"):
        writer.write(framed(b"say:before") + attack)
        assert await answer(reader) == b"before"
        if attack[:1] == b"\x00":  # a random length may be a legal one: then the peer is just slow
            writer.close()
        else:
            assert await closed(reader)
            assert len([r for r in caplog.records if "closing connection" in r.message]) == 1
    good_writer.write(framed(b"say:fine"))
    assert await answer(good_reader) == b"fine"


@on_uvloop
async def test_log_lines_about_hostile_peers_are_limited(
    dial: Dial, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "isthmus.broker"):
        for _ in range(40):
            reader, writer = await dial()
            writer.write(framed(b"nonsense"))
            assert await closed(reader)
    assert listener.refused_count == 40
    assert len([r for r in caplog.records if "closing connection" in r.message]) < 40


@on_uvloop
async def test_a_client_that_never_waits_fills_its_own_socket_not_our_memory(
    dial: Dial, listener: Listener, script: Scripted
) -> None:
    reader, writer = await dial()
    writer.transport.set_write_buffer_limits(high=0)
    writer.write(framed(b"wait:gate"))
    await until(lambda: bool(script.started))
    request = framed(b"say:" + b"x" * 1000)
    sent = 0
    while True:
        writer.write(request * 50)
        sent += 50
        try:
            await asyncio.wait_for(writer.drain(), 0.3)
        except TimeoutError:
            break
        assert sent * len(request) < 64 * 1024 * 1024, "the broker reads on without answering"
    (connection,) = listener.connections
    assert connection._buffer.capacity <= 4 * START
    script.release("gate")
    assert await answer(reader) == b"gate"
    for _ in range(sent):
        assert len(await answer(reader)) == 1000


@on_uvloop
async def test_a_client_that_does_not_read_stops_being_served(
    dial: Dial, listener: Listener, script: Scripted
) -> None:
    reader, writer = await dial()
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    size = 4 * 1024 * 1024
    writer.write(framed(b"big:%d" % size) * 50)
    await until(lambda: bool(script.started))
    await asyncio.sleep(0.1)
    assert len(script.started) < 5, "answers nobody reads pile up"
    reader._transport.resume_reading()  # type: ignore[attr-defined]
    async with asyncio.timeout(BOUND_S):
        await reader.readexactly(50 * (size + 4))
    assert len(script.started) == 50


@on_uvloop
async def test_regions_of_files_keep_their_place_between_other_answers(dial: Dial, tmp_path: Path) -> None:
    content = os.urandom(9_000_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    reader, writer = await dial()
    request = framed(b"file:%s|%d" % (str(path).encode(), len(content)))
    writer.write(framed(b"say:before") + request + framed(b"say:between") + request + framed(b"say:after"))
    answers = [await answer(reader) for _ in range(5)]
    assert answers == [b"before", content, b"between", content, b"after"]


@on_uvloop
async def test_a_reader_that_takes_everything_at_once_keeps_nobody_waiting(
    dial: Dial, script: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 64_000_000
    path = tmp_path / "segment"
    path.write_bytes(b"")
    os.truncate(path, size)
    seen: list[tuple[int, bool]] = []
    _, other = await dial()

    def taken(out: int, file: int, position: int, count: int) -> int:
        if not seen:
            other.write(framed(b"say:other"))
        seen.append((count, "other" in script.started))
        return count

    monkeypatch.setattr(os, "sendfile", taken)
    reader, writer = await dial()
    writer.write(framed(b"file:%s|%d" % (str(path).encode(), size)) + framed(b"say:after"))
    assert await reader.readexactly(4) == size.to_bytes(4, "big")
    assert await answer(reader) == b"after", "the file was taken by the stand-in, and what follows was sent"
    assert sum(count for count, _ in seen) == size
    waited = sum(count for count, served in seen if not served)
    assert waited <= 4 * IN_A_TURN


@on_uvloop
async def test_a_connection_that_ends_between_two_turns_of_an_answer_ends_alone(
    dial: Dial, listener: Listener, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"")
    os.truncate(path, 256_000_000)
    for _ in range(20):
        reader, writer = await dial()
        writer.write(framed(b"file:%s|256000000" % str(path).encode()))
        await reader.readexactly(100_000)
        writer.transport.abort()
    await until(lambda: not listener.connections)
    reader, writer = await dial()
    writer.write(framed(b"say:still here"))
    assert await answer(reader) == b"still here"
    assert not caplog.records


@on_uvloop
async def test_a_slow_reader_of_a_region_holds_one_piece_of_it(
    dial: Dial, listener: Listener, tmp_path: Path
) -> None:
    content = os.urandom(30_000_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    reader, writer = await dial()
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(framed(b"file:%s|%d" % (str(path).encode(), len(content))) * 2)
    await until(lambda: any(connection._outbox for connection in listener.connections))
    (connection,) = listener.connections
    assert connection._transport is not None
    assert connection._transport.get_write_buffer_size() <= PIECE
    path.unlink()
    reader._transport.resume_reading()  # type: ignore[attr-defined]
    assert await answer(reader) == content
    assert await closed(reader), "the second request found no file"


@on_uvloop
async def test_a_file_that_is_too_short_ends_the_connection(dial: Dial, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"x" * 1000)
    reader, writer = await dial()
    writer.write(framed(b"file:%s|%d" % (str(path).encode(), 5000)))
    with pytest.raises(asyncio.IncompleteReadError):
        await answer(reader)


@on_uvloop
async def test_waiting_is_abandoned_only_where_that_is_safe(
    dial: Dial, listener: Listener, script: Scripted
) -> None:
    _, fetching = await dial()
    _, joining = await dial()
    fetching.write(framed(b"leave:fetch"))
    joining.write(framed(b"wait:join"))
    await until(lambda: len(script.started) == 2)
    fetching.transport.abort()
    joining.transport.abort()
    await until(lambda: not listener.connections)
    assert script.abandoned == ["fetch"]
    script.release("join")
    await until(lambda: not listener._tasks)
    assert script.abandoned == ["fetch"]
