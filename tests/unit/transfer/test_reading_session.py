"""What a link asks for within a fetch session, against a broker's own cache of sessions."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.server.fetch_sessions import FetchSessionCache, partitions_of
from protocol.codec import decode
from protocol.errors import KafkaError
from protocol.frames import encode_response
from protocol.messages.fetch_request import FetchRequest
from protocol.messages.fetch_response import FetchResponse
from protocol.types import TopicPartition
from transfer.kafka.reading import Reading
from transfer.kafka.reading_session import ReadingSession

VERSION = 17
_PARTITIONS = [(name, index) for name in "ab" for index in (0, 1, 2)]


class Asked(NamedTuple):
    offset: int
    leader_epoch: int
    last_epoch: int


def reading(name: str, index: int, asked: Asked) -> Reading:
    tp = TopicPartition(name, index)
    return Reading(tp, asked.offset, name.encode() * 16, 1, asked.leader_epoch, asked.last_epoch)


def session_for(worth_from: int, clock: Callable[[], float] = lambda: 0.0) -> ReadingSession:
    return ReadingSession(100, worth_from, clock)


def frame(answer: FetchResponse) -> memoryview:
    return memoryview(b"".join(encode_response(answer, VERSION, 1))[4:])


class Broker:
    """Knows what it would look at."""

    def __init__(self, slots: int = 10) -> None:
        self.cache = FetchSessionCache(slots)
        self.named = 0
        """Partitions that the last request named, or took out."""

    def serve(self, body: bytes) -> tuple[FetchResponse, dict[tuple[str, int], Asked]]:
        request = decode(FetchRequest, VERSION, memoryview(body))
        wanted = partitions_of(request, VERSION)
        self.named = len(wanted) + sum(len(topic.partitions) for topic in request.forgotten_topics_data)
        try:
            if request.session_epoch <= 0:
                self.cache.close(request.session_id)
            if request.session_epoch < 0:
                session = None
            elif request.session_epoch == 0:
                session = self.cache.create(wanted, privileged=False, uses_ids=True, now_s=0.0)
            else:
                session = self.cache.resume(request, VERSION, 0.0)
                wanted = session.partitions
        except KafkaError as error:
            return FetchResponse(error_code=int(error.code)), {}
        asked = {}
        for (topic_id, index), each in wanted.items():
            part = each.asked
            where = Asked(part.fetch_offset, part.current_leader_epoch, part.last_fetched_epoch)
            asked[bytes(topic_id)[:1].decode(), index] = where  # type: ignore[arg-type]
        return FetchResponse(session_id=session.session_id if session else 0), asked


_rounds = st.lists(
    st.dictionaries(
        st.sampled_from(_PARTITIONS),
        st.builds(Asked, st.integers(0, 3), st.integers(0, 1), st.integers(0, 1)),
        min_size=1,
    ),
    min_size=1,
    max_size=8,
)


@given(rounds=_rounds, forgets=st.sets(st.integers(0, 7)), lost=st.sets(st.integers(0, 7)), data=st.data())
def test_the_broker_looks_at_exactly_what_is_picked(rounds, forgets, lost, data):
    broker, session = Broker(), session_for(1)
    known: dict[tuple[str, int], Reading] = {}
    for number, wanted in enumerate(rounds):
        picked = []
        for (name, index), asked in wanted.items():
            now = known.get((name, index))
            if now is None or data.draw(st.booleans()):  # opened again: another reading of the same
                now = known[name, index] = reading(name, index, asked)
            now.position, now.leader_epoch, now.last_epoch = asked
            picked.append(now)
        if number in forgets:
            broker.cache = FetchSessionCache(10)
        while True:
            (body,) = session.body(VERSION, picked, max_wait_ms=1, max_bytes=1)
            answer, asked_for = broker.serve(bytes(body))
            if session.heard(frame(answer)):
                break
        assert asked_for == wanted
        if number in lost:
            session.reset()


def test_what_has_not_moved_is_not_named():
    broker, session = Broker(), session_for(1)
    picked = [reading(name, index, Asked(1, 1, 1)) for name, index in _PARTITIONS]
    named = []
    for step in range(4):
        (body,) = session.body(VERSION, picked, max_wait_ms=1, max_bytes=1)
        assert session.heard(frame(broker.serve(bytes(body))[0]))
        named.append(broker.named)
        if step == 1:
            picked[0].position += 1
        if step == 2:
            picked.pop()
    assert named == [6, 0, 1, 1]


@pytest.mark.parametrize("code", [70, 71, 106])
def test_a_session_that_is_refused_is_begun_again_once(code):
    session = session_for(1)
    picked = [reading("a", 0, Asked(1, 1, 1))]
    session.body(VERSION, picked, max_wait_ms=1, max_bytes=1)
    assert session.heard(frame(FetchResponse(session_id=9)))
    session.body(VERSION, picked, max_wait_ms=1, max_bytes=1)
    assert not session.heard(frame(FetchResponse(error_code=code)))
    (body,) = session.body(VERSION, picked, max_wait_ms=1, max_bytes=1)
    request = decode(FetchRequest, VERSION, memoryview(bytes(body)))
    assert (request.session_epoch, len(request.topics)) == (0, 1)
    assert session.heard(frame(FetchResponse(error_code=code)))  # whoever reads it looks further


def test_a_session_that_was_lost_sight_of_makes_room_for_the_next():
    broker, session = Broker(slots=1), session_for(1)
    picked = [reading("a", 0, Asked(1, 1, 1))]
    for _ in range(3):
        for _ in range(2):
            (body,) = session.body(VERSION, picked, max_wait_ms=1, max_bytes=1)
            answer, _ = broker.serve(bytes(body))
            assert session.heard(frame(answer))
            assert answer.session_id
        session.reset()  # another connection
    assert len(broker.cache) == 1


@pytest.mark.parametrize(("code", "named"), [(70, 0), (71, 9), (106, 9), (6, 9)])
def test_a_session_that_may_be_there_is_named_in_the_next_full_request(code, named):
    session = session_for(1)
    picked = [reading("a", 0, Asked(1, 1, 1))]
    for answer in (FetchResponse(session_id=9), FetchResponse(error_code=code)):
        session.body(VERSION, picked, max_wait_ms=1, max_bytes=1)
        session.heard(frame(answer))
    (body,) = session.body(VERSION, picked, max_wait_ms=1, max_bytes=1)
    request = decode(FetchRequest, VERSION, memoryview(bytes(body)))
    assert (request.session_id, request.session_epoch) == (named, 0)


def test_a_broker_without_a_free_slot_is_asked_again_later():
    now = 5.0
    broker, session = Broker(slots=0), session_for(1, lambda: now)
    picked = [reading("a", 0, Asked(1, 1, 1))]
    assert session.suits(VERSION, picked)
    (body,) = session.body(VERSION, picked, max_wait_ms=1, max_bytes=1)
    assert session.heard(frame(broker.serve(bytes(body))[0]))
    now += 29
    assert not session.suits(VERSION, picked)
    now += 1
    assert session.suits(VERSION, picked)
    broker.cache.slots = 1
    (body,) = session.body(VERSION, picked, max_wait_ms=1, max_bytes=1)
    assert session.heard(frame(broker.serve(bytes(body))[0]))
    assert session.suits(VERSION, picked)
    assert session.stands


def test_a_farewell_gives_the_slot_back():
    broker, session = Broker(slots=1), session_for(1)
    assert not session.stands
    (body,) = session.body(VERSION, [reading("a", 0, Asked(1, 1, 1))], max_wait_ms=1, max_bytes=1)
    assert session.heard(frame(broker.serve(bytes(body))[0]))
    assert session.stands
    (body,) = session.farewell(VERSION)
    broker.serve(bytes(body))
    assert len(broker.cache) == 0
    assert not session.stands


def test_any_other_error_is_for_who_reads_the_answer():
    session = session_for(1)
    picked = [reading("a", 0, Asked(1, 1, 1))]
    for answer in (FetchResponse(session_id=9), FetchResponse(error_code=6)):
        session.body(VERSION, picked, max_wait_ms=1, max_bytes=1)
        assert session.heard(frame(answer))
    (body,) = session.body(VERSION, picked, max_wait_ms=1, max_bytes=1)
    assert decode(FetchRequest, VERSION, memoryview(bytes(body))).session_epoch == 0


def test_sessions_are_for_many_partitions_at_the_end_of_their_logs():
    session = session_for(3)
    picked = [reading("a", index, Asked(5, 1, 1)) for index in range(3)]
    assert session.suits(13, picked)
    assert not session.suits(12, picked)
    assert not session.suits(13, picked[:2])
    picked[1].last_stable_offset = 6
    assert not session.suits(13, picked)
    picked[1].position = 6
    assert session.suits(13, picked)
