"""What is said of a wish before it holds."""

import pytest

from replicator.settings import GROUPS_EXCLUDE, TOPICS_EXCLUDE, LinkSettings
from replicator.workers import asking
from replicator.workers.asking import no_longer_excluded
from replicator.workers.control import Scope, changed

FILE = LinkSettings.model_validate(
    {
        "source": {"alias": "east", "bootstrap": "e:1"},
        "target": {"alias": "west", "bootstrap": "w:1"},
        "topics_exclude": [*TOPICS_EXCLUDE, "secret"],
    }
)


def said(before, after):
    return no_longer_excluded(FILE, before, changed(FILE, after))


def test_patterns_that_a_list_drops_are_named_those_of_the_defaults_too():
    assert said({}, {"groups_exclude": "batch,__.*"}) == [
        f"groups_exclude has no longer {', '.join(GROUPS_EXCLUDE[:2])}"
    ]
    assert said({}, {"topics_exclude": ",".join(TOPICS_EXCLUDE)}) == ["topics_exclude has no longer secret"]
    assert said({"groups_exclude": "batch"}, {}) == ["groups_exclude has no longer batch"]


def test_nothing_is_said_where_a_list_grows_or_what_held_before_was_wrong():
    assert said({}, {"groups_exclude": ",".join((*GROUPS_EXCLUDE, "batch"))}) == []
    assert said({"groups_exclude": "("}, {"rate_limit": "5"}) == []


@pytest.mark.parametrize("topic", ["orders/3", "orders.*", ""])
async def test_what_no_topic_can_be_called_is_not_paused(topic):
    """It was said to be paused, and workers could not read that record, which nobody could take away."""
    for ask in (asking.pause, asking.restart):
        with pytest.raises(asking.NotAsked, match="is no topic name"):
            await ask(FILE, Scope(topic), asking.wish())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rat_limit", "did you mean 'rate_limit'"),
        ("exactly_once", "cannot be changed"),
        ("topics", "at once"),
    ],
)
async def test_a_setting_is_unset_only_where_it_can_have_been_set(name, said):
    """Of a name with a slip it was said that it is as in the file again."""
    with pytest.raises(asking.NotAsked, match=said):
        await asking.set_values(FILE, {"topics": "orders"}, unset=(name,))
