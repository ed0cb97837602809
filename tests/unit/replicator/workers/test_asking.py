"""What is said of a wish before it holds."""

from replicator.settings import GROUPS_EXCLUDE, TOPICS_EXCLUDE, LinkSettings
from replicator.workers.asking import no_longer_excluded
from replicator.workers.control import changed

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
