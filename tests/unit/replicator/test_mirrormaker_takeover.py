"""Whether there is anything to take over, as the target tells it."""

import pytest

from protocol.client.metadata import Metadata, TopicMetadata
from protocol.errors import ErrorCode, KafkaError
from replicator.mirrormaker.connect_offsets import NotToldError
from replicator.mirrormaker.takeover import take_over
from replicator.settings import LinkSettings

_OFFSETS = "mm2-offsets.east.internal"


class Target:
    """Says one code about every topic."""

    def __init__(self, code):
        self._code = code

    async def metadata(self, topics):
        return Metadata(
            "c", 1, {}, {name: TopicMetadata(name, bytes(16), self._code, False, {}) for name in topics}
        )


def link():
    return LinkSettings.model_validate(
        {
            "source": {"alias": "east", "bootstrap": "a:1"},
            "target": {"alias": "west", "bootstrap": "b:1"},
            "take_over": {"offsets_topic": _OFFSETS, "group": "east-mm2"},
        }
    )


async def test_where_mirrormaker_never_was_nothing_is_taken_over():
    taken = await take_over(None, Target(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), link(), {})
    assert not taken.entries


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.LEADER_NOT_AVAILABLE])
async def test_a_target_that_does_not_tell_is_not_one_without_progress(code):
    """To begin anew would copy everything that MirrorMaker 2 has copied once more."""
    with pytest.raises(NotToldError, match=_OFFSETS) as told:
        await take_over(None, Target(code), link(), {})
    assert bool(told.value.to_do) == (code is ErrorCode.TOPIC_AUTHORIZATION_FAILED)


async def test_a_group_that_may_not_be_seen_is_named_with_its_right():
    class Closed(Target):
        async def describe_groups(self, groups):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, f"coordinator of group {groups[0]}")

    with pytest.raises(NotToldError) as told:
        await take_over(None, Closed(ErrorCode.NONE), link(), {})
    assert told.value.to_do == "grant the link's user DESCRIBE on group east-mm2"
