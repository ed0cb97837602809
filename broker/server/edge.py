"""The network edge: accept, pump, time out, close. Knows frames and answers, nothing about Kafka.

A connection takes whole frames out of its receive buffer and gives each to `serve`, which returns the
answer's segments, None (no answer), or what is to be waited for: a coroutine (`Pending`) or news
(`Deferred`). Answers leave in the order of their requests. While an answer is pending the next frame stays
where it is, in the receive buffer, and once that is full the socket is not read: a client that does not wait
for its answers fills its own socket, not our memory. The same holds for a client that does not read its
answers. `serve` raises `CloseConnectionError` to end just this connection.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

from broker.server.answer_order import Answer, AnswerOrder, Deferred, Outcome, Pending, Segments
from broker.server.connection_limits import UNKNOWN_HOST
from broker.server.context import ConnectionInfo
from broker.server.intake import START, FrameBuffer
from broker.server.outbox import Bytes, Outbox, Region, ShortRegionError
from broker.server.request_memory import RequestMemory

logger = logging.getLogger("isthmus.broker")

# Answers up to this many bytes together go out in one write.
COALESCED = 64 * 1024
# Where more requests seem to be there already, answers wait for those up to this many bytes of them: a write
# costs as much as half a batch's append, and the client has other requests in flight meanwhile.
TOGETHER = 256 * 1024

BUSY_S = 0.1
"""A connection that sends again within this time keeps its receive buffer until it is idle."""


class CloseConnectionError(Exception):
    """The peer broke the protocol, or asked for what has no answer; its connection ends, nothing else."""


Serve = Callable[[memoryview, ConnectionInfo], Outcome]


class Connection(asyncio.BufferedProtocol):
    """One client connection. `owner` is told when it is made and lost."""

    __slots__ = (
        "_answers", "_blocked", "_buffer", "_busy", "_closing", "_flush_due", "_info", "_more", "_out",
        "_out_size", "_outbox", "_owner", "_reading", "_received_at", "_room", "_serve", "_starved",
        "_transport", "_unanswered", "last_active",
    )  # fmt: skip

    def __init__(self, owner: ConnectionOwner, serve: Serve, max_frame: int) -> None:
        self._owner = owner
        self._serve = serve
        self._buffer = FrameBuffer(max_frame)
        self._answers = AnswerOrder()
        self._out: list[Bytes | Region] = []
        self._out_size = 0
        self._outbox: Outbox
        self._room = 0  # of the next read
        self._more = False  # whether the last read has filled it, so that there may be more to read
        self._unanswered = 0  # bytes received since the last flush
        self._flush_due = False
        self._blocked = False  # a request is pending that no other may overtake
        self._reading = True
        self._received_at = -math.inf
        self._busy = False  # it had sent something a moment before that as well
        self._starved = False  # its next frame is large, and others hold the memory for it
        self._closing = False
        self._transport: asyncio.Transport | None = None
        self._info = ConnectionInfo("", 0)
        self.last_active = 0.0

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases
        self._outbox = Outbox(self._transport)
        peer = transport.get_extra_info("peername") or (UNKNOWN_HOST, 0)
        self._info = ConnectionInfo(str(peer[0]), int(peer[1]), self._owner.name)
        self.last_active = self._owner.now()
        self._owner.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._transport = None
        self._answers.abandon()
        if self._owner.memory is not None:
            self._owner.memory.forget(self)
        self._out.clear()
        self._outbox.clear()
        self._owner.connection_lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        space = self._buffer.space()
        self._room = len(space)
        return space

    def buffer_updated(self, nbytes: int) -> None:
        self._buffer.received(nbytes)
        now = self._owner.now()
        self._busy = now - self._received_at < BUSY_S
        self._received_at = self.last_active = now
        if self._answers.ending:
            self._buffer.discard()
            return
        self._unanswered += nbytes
        self._more = nbytes == self._room and self._unanswered < TOGETHER
        self._pump()
        self._more = False

    def eof_received(self) -> bool:
        self._flush()
        return False  # close, after what is written has left; a pending answer has no reader any more

    def pause_writing(self) -> None:
        self._outbox.writable = False

    def resume_writing(self) -> None:
        self._outbox.writable = True
        self.last_active = self._owner.now()
        self._flush()
        self._go_on()

    def _next_turn(self) -> None:
        """Write what was left for others to have their turn."""
        if self._transport is not None and not self._transport.is_closing():
            self._write(self._outbox.go_on)
            if not self._outbox:
                self._go_on()

    def _go_on(self) -> None:
        if not self._closing:
            self._pump()
        elif not self._outbox:
            self.close()

    # -- the pump

    def _pump(self) -> None:
        """Serve frames while nothing holds them up; small answers to pipelined ones are written together."""
        memory = self._owner.memory
        try:
            outbox = self._outbox
            while not self._blocked and not self._closing and outbox.writable and not outbox.queue:
                frame = self._buffer.next_frame()
                if frame is None:
                    break
                self._take(self._serve(frame, self._info))
                if memory is not None:
                    memory.give_back(self)
                if self._out_size > COALESCED:
                    self._flush()
        except Exception as error:  # noqa: BLE001 - whatever it was, only this connection ends
            self._owner.refused(self._info, error)
            self._line_up(Answer(last=True))  # what was asked before the offence is answered
            self._answer_in_turn()
            return
        if not self._more:
            self._flush()
        elif self._out and not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush_now)
        self._steer_reading()
        if self._blocked and self._buffer.pending and self._answers:
            self._info.hurry()

    def _take(self, outcome: Outcome) -> None:
        if outcome is None:
            return
        if isinstance(outcome, Pending | Deferred):
            answer = Answer()
            self._wait(answer, outcome)
            self._line_up(answer)
        elif self._answers:
            self._line_up(Answer(outcome))
        else:
            self._write_later(outcome)

    def _wait(self, answer: Answer, outcome: Pending | Deferred) -> None:
        if isinstance(outcome, Deferred):
            answer.later(outcome)
            outcome.begin(partial(self._woken, answer, outcome))
        else:
            task = self._owner.start(outcome.coroutine)
            answer.later(task, outcome)
            task.add_done_callback(partial(self._answered, answer, outcome))

    def _write_later(self, answer: Segments) -> None:
        self._out += answer
        self._out_size += sum(map(len, answer))

    def _line_up(self, answer: Answer) -> None:
        self._answers.add(answer)
        if answer.last:
            self._serve_no_more()
        self._blocked = self._answers.blocked

    def _serve_no_more(self) -> None:
        """Read and forget what comes, so that the peer is heard to go and gets what it is owed: closing with
        bytes unread would take that back.
        """
        if self._answers.ending:
            return
        self._answers.ending = True
        self._buffer.discard()
        if self._owner.memory is not None:
            self._owner.memory.forget(self)
        if not self._reading and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()

    def _woken(self, answer: Answer, deferred: Deferred) -> None:
        if answer.waits_for is not deferred or self._closing:
            return
        try:
            outcome = deferred.attempt()
        except Exception as error:  # noqa: BLE001 - see `_pump`
            self._refuse(answer, error)
        else:
            self._settle(answer, outcome)

    def _answered(self, answer: Answer, pending: Pending, task: asyncio.Task[Outcome]) -> None:
        if task.cancelled():
            pending.drop()
        if self._closing or task.cancelled():
            answer.waits_for = None
            return
        error = task.exception()
        if error is not None:
            self._refuse(answer, error)
        else:
            self._settle(answer, task.result())

    def _settle(self, answer: Answer, outcome: Outcome) -> None:
        if isinstance(outcome, Pending | Deferred):
            self._wait(answer, outcome)
            return
        answer.waits_for = None
        answer.segments = outcome
        self._answer_in_turn()

    def _refuse(self, answer: Answer, error: BaseException) -> None:
        """Its request cannot be answered: the connection ends once what was asked before is."""
        answer.waits_for = None
        self._owner.refused(self._info, error)
        answer.last = True
        self._serve_no_more()
        self._answer_in_turn()

    def _answer_in_turn(self) -> None:
        """Write what is there and waits for nothing; end the connection after the last answer."""
        for answer in self._answers.due():
            if answer.segments is not None:
                self._write_later(answer.segments)
            if answer.last:
                self._answers.abandon()
                self._flush()
                self.close()
                return
        self._blocked = self._answers.blocked
        self._info.hurried = False
        self._pump()

    @property
    def _held_up(self) -> bool:
        """Whether the peer has not taken earlier answers yet."""
        return not self._outbox.writable or bool(self._outbox)

    def _flush_now(self) -> None:
        self._flush_due = False
        if not self._closing:
            self._flush()

    def _flush(self) -> None:
        """Hand over what is to be written, as far as the peer takes it."""
        self._unanswered = 0
        if not self._out and not self._outbox:
            return
        out, self._out, self._out_size = self._out, [], 0
        self._write(partial(self._outbox.write, out))

    def _write(self, write: Callable[[], bool]) -> None:
        if self._transport is None:
            return
        try:
            if write():
                asyncio.get_running_loop().call_soon(self._next_turn)
        except ShortRegionError as error:
            self._owner.refused(self._info, error)
            self.abort()
        except OSError:  # the peer has gone
            self.abort()

    def _steer_reading(self) -> None:
        """Read on unless whole frames fill the buffer; hand the buffer back when nothing is in it."""
        if self._transport is None or self._answers.ending:
            return
        memory = self._owner.memory
        if memory is not None:
            announced = self._buffer.announced
            self._starved = announced > START and not memory.claim(self, announced)
        full = self._starved or (
            self._buffer.pending > 0 and (self._blocked or self._held_up) and len(self._buffer.space()) == 0
        )
        if full and self._reading:
            self._reading = False
            self._transport.pause_reading()
        elif not full and not self._reading:
            self._reading = True
            self._transport.resume_reading()
        if memory is not None or (not self._busy and self._buffer.capacity <= START):
            self._buffer.release()

    # -- the owner's side

    @property
    def info(self) -> ConnectionInfo:
        return self._info

    @property
    def waiting(self) -> bool:
        """Whether the peer waits for an answer that we have not finished (such a connection is not idle)."""
        return bool(self._answers)

    def hold(self) -> None:
        """Serve nothing until `let_go`; to be called before anything was received."""
        self._blocked = True

    def let_go(self) -> None:
        if not self._closing:
            self._blocked = False
            self._pump()

    def accept_frames(self, max_frame: int) -> None:
        """Take frames of up to this many bytes from now on."""
        self._buffer.max_frame = max_frame

    def transport_info(self, name: str) -> Any:
        """What asyncio's `get_extra_info` knows of the connection; None once it is lost."""
        return None if self._transport is None else self._transport.get_extra_info(name)

    def memory_is_free(self) -> None:
        self._steer_reading()

    @property
    def unfinished(self) -> int:
        """Bytes of a request that has not come whole."""
        return self._buffer.pending

    def release_buffer(self) -> None:
        self._buffer.release()

    def close(self) -> None:
        """Close after what is written has left."""
        self._closing = True
        if self._transport is not None and not self._outbox:
            self._transport.close()

    def abort(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.abort()


class ConnectionOwner:
    """What a connection asks of whoever accepted it (see `broker.server.listener`)."""

    name = "PLAINTEXT"
    memory: RequestMemory | None = None

    def now(self) -> float:
        raise NotImplementedError

    def start(self, coroutine: Coroutine[Any, Any, Outcome]) -> asyncio.Task[Outcome]:
        raise NotImplementedError

    def connection_made(self, connection: Connection) -> None:
        raise NotImplementedError

    def connection_lost(self, connection: Connection) -> None:
        raise NotImplementedError

    def refused(self, info: ConnectionInfo, error: BaseException) -> None:
        raise NotImplementedError
