"""A reader's fetch session against a broker's own cache of sessions."""

from hypothesis import given
from hypothesis import strategies as st

from broker.server.fetch_sessions import FetchSessionCache, partitions_of
from protocol.client.fetch_session import FetchSession, Key, Position
from protocol.messages.fetch_request import FetchRequest

VERSION = 17
KEYS: list[Key] = [(bytes([topic]) * 16, index) for topic in (1, 2) for index in (0, 1)]

states = st.dictionaries(
    st.sampled_from(KEYS), st.builds(Position, st.integers(0, 3), st.just(1), st.just(1), st.just(0))
)


def request(session: FetchSession, wanted: dict[Key, Position]) -> FetchRequest:
    for key in KEYS:
        if key in wanted:
            session.want(key, wanted[key])
        else:
            session.forget(key)
    topics, forgotten = session.next()
    return FetchRequest(
        session_id=session.session_id,
        session_epoch=session.epoch,
        topics=topics,
        forgotten_topics_data=forgotten,
    )


def served(cache: FetchSessionCache, asked: FetchRequest) -> tuple[int, dict[Key, int]]:
    """What a leader would look at: session id, and fetch offset by partition."""
    if asked.session_epoch == 0:
        wanted = partitions_of(asked, VERSION)
        session = cache.create(wanted, privileged=True, uses_ids=True, now_s=0.0)
    else:
        session = cache.resume(asked, VERSION, 0.0)
        wanted = session.partitions
    offsets = {key: each.asked.fetch_offset for key, each in wanted.items()}
    return 0 if session is None else session.session_id, offsets  # type: ignore[return-value]


@given(st.lists(states.filter(bool), min_size=1, max_size=8), st.sets(st.integers(0, 7)))
def test_the_leader_looks_at_exactly_what_is_wanted(
    rounds: list[dict[Key, Position]], losses: set[int]
) -> None:
    cache = FetchSessionCache(10)
    session = FetchSession(100)
    for number, wanted in enumerate(rounds):
        session_id, offsets = served(cache, request(session, wanted))
        assert offsets == {key: position.offset for key, position in wanted.items()}
        if number in losses:  # the answer did not come
            session.reset()
        else:
            session.answered(session_id)


def test_a_leader_without_room_gets_full_requests() -> None:
    session = FetchSession(100)
    wanted = {KEYS[0]: Position(5, 1, 1, 0)}
    for _ in range(2):
        asked = request(session, wanted)
        assert asked.session_epoch == 0
        assert [part.fetch_offset for topic in asked.topics for part in topic.partitions] == [5]
        session.answered(0)


def test_a_session_that_is_begun_anew_gives_the_slot_of_the_one_before_back() -> None:
    session = FetchSession(100)
    wanted = {KEYS[0]: Position(5, 1, 1, 0)}
    request(session, wanted)
    session.answered(77)
    session.reset()
    asked = request(session, wanted)
    assert (asked.session_id, asked.session_epoch, len(asked.topics)) == (77, 0, 1)
    session.reset(gone=True)
    assert request(session, wanted).session_id == 0


def test_nothing_new_names_nothing() -> None:
    session = FetchSession(100)
    wanted = {key: Position(5, 1, 1, 0) for key in KEYS}
    request(session, wanted)
    session.answered(77)
    asked = request(session, wanted)
    assert (asked.session_id, asked.session_epoch) == (77, 1)
    assert asked.topics == asked.forgotten_topics_data == []
