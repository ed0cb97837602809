"""Questions that are asked at the same moment share a request."""

import asyncio
from collections.abc import Mapping

import pytest

from protocol.client.same_again import SameAgain
from protocol.client.together import Together
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.frames import encode_response
from protocol.messages.metadata_request import MetadataRequest
from protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic

_REFUSED = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "c")


class Asked:
    def __init__(self) -> None:
        self.questions: list[list[str]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self, items: list[str]) -> Mapping[str, int | BaseException]:
        self.questions.append(items)
        await self.go_on.wait()
        if "nobody" in items:
            raise DecodeError("nothing to read")
        return {item: _REFUSED if item == "c" else len(item) for item in items if item != "forgotten"}


async def test_all_of_one_moment_are_asked_at_once_and_each_has_its_own_answer() -> None:
    asked = Asked()
    together = Together(asked)
    found = await asyncio.gather(*map(together.one, ("a", "bb", "c", "a")), return_exceptions=True)
    assert found == [1, 2, _REFUSED, 1]
    assert asked.questions == [["a", "bb", "c"]]
    assert await together.one("bb") == 2
    assert len(asked.questions) == 2


async def test_who_comes_later_does_not_wait_for_a_question_that_hangs() -> None:
    asked = Asked()
    together = Together(asked)
    asked.go_on.clear()
    first = asyncio.create_task(together.one("a"))
    while not asked.questions:
        await asyncio.sleep(0)
    hangs, asked.go_on = asked.go_on, asyncio.Event()
    asked.go_on.set()
    assert await together.one("a") == 1
    assert not first.done()
    hangs.set()
    assert await first == 1


async def test_one_that_gives_up_takes_the_answer_from_nobody() -> None:
    asked = Asked()
    together = Together(asked)
    gives_up, waits = (asyncio.create_task(together.one(item)) for item in ("a", "a"))
    await asyncio.sleep(0)
    gives_up.cancel()
    assert await waits == 1
    with pytest.raises(asyncio.CancelledError):
        await gives_up


async def test_what_fails_as_a_whole_fails_for_each_and_what_is_left_out_for_itself() -> None:
    together = Together(Asked())
    failed = await asyncio.gather(*map(together.one, ("nobody", "a")), return_exceptions=True)
    assert all(isinstance(error, DecodeError) for error in failed)
    left_out, other = await asyncio.gather(*map(together.one, ("forgotten", "a")), return_exceptions=True)
    assert isinstance(left_out, KeyError)
    assert other == 1


def test_an_answer_of_the_same_bytes_is_not_read_again() -> None:
    def frame(name: str, correlation_id: int) -> memoryview:
        answer = MetadataResponse(topics=[MetadataResponseTopic(name=name)])
        return memoryview(b"".join(map(bytes, encode_response(answer, 12, correlation_id))))[4:]

    known: SameAgain[MetadataResponse, str] = SameAgain()
    made: list[str] = []

    def make(answer: MetadataResponse) -> str:
        made.append(str(answer.topics[0].name))
        return made[-1]

    first = known.read(frame("a", 1), MetadataRequest, 12)
    again = known.read(frame("a", 2), MetadataRequest, 12)
    assert again is first
    assert [known.made(first, make), known.made(again, make)] == ["a", "a"]
    other = known.read(frame("b", 3), MetadataRequest, 12)
    assert known.made(other, make) == "b"
    assert made == ["a", "b"]
    with pytest.raises(DecodeError):
        known.read(frame("b", 4)[:-3], MetadataRequest, 12)
