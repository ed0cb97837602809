"""Names, the cycle rule, and which topics a link takes."""

import pytest
from pydantic import ValidationError

from replicator.cycles import is_cycle, would_circle
from replicator.filters import NameFilter, TopicFilter
from replicator.naming import Naming, is_internal
from replicator.renaming import Rename
from replicator.settings import GROUPS_EXCLUDE, TOPICS_EXCLUDE, LinkSettings

EAST_WEST = Naming("east", "west")


def settings(**changes):
    ends = {
        "source": {"alias": "east", "bootstrap": "a:1"},
        "target": {"alias": "west", "bootstrap": "b:2"},
    }
    return LinkSettings.model_validate({**ends, **changes})


def test_names_are_those_of_mirrormaker():
    assert EAST_WEST.at_target("orders") == "east.orders"
    assert EAST_WEST.checkpoints == "east.checkpoints.internal"
    assert EAST_WEST.offset_syncs(at_source=True) == "mm2-offset-syncs.west.internal"
    assert EAST_WEST.offset_syncs(at_source=False) == "mm2-offset-syncs.east.internal"
    same = Naming("east", "west", identity=True)
    assert same.at_target("orders") == "orders"
    assert same.at_target("heartbeats") == "east.heartbeats"
    assert same.at_target("north.heartbeats") == "east.north.heartbeats"
    assert same.at_target("my-heartbeats") == "my-heartbeats"
    assert Naming("east", "west", "_").at_target("orders") == "east_orders"


@pytest.mark.parametrize("more", [{"offsets": "identical"}, {"heartbeats_replication": False}])
def test_a_link_that_copies_no_heartbeats_changes_no_names(more):
    link = settings(naming="identity", topics=[".*"], **more)
    assert link.topic_filter().refuses("heartbeats") == "heartbeats are not replicated"
    for topic in ("device.heartbeats", "north.heartbeats", "orders"):
        assert link.topic_filter().accepts(topic)
        assert link.names().at_target(topic) == topic
    assert settings(naming="identity", topics=["orders"], **more).topic_filter().refuses("north.heartbeats")


def test_internal_topics_carry_the_separator_unless_told_not_to():
    lined = Naming("east", "west", "_")
    assert lined.checkpoints == "east_checkpoints_internal"
    assert lined.offset_syncs(at_source=True) == "mm2-offset-syncs_west_internal"
    assert lined.is_internal("mm2-offset-syncs_west_internal")
    assert lined.is_internal("a.internal")
    dotted = Naming("east", "west", "_", internal_separator=False)
    assert dotted.checkpoints == "east.checkpoints.internal"
    assert dotted.offset_syncs(at_source=False) == "mm2-offset-syncs.east.internal"
    assert not dotted.is_internal("my_internal")


def test_names_of_a_copy_go_by_rules_and_the_first_that_matches_counts():
    rules = (Rename.parse("orders=archive"), Rename.parse(r"pay\.(.*)=old.\1"), Rename.parse("pay.*=never"))
    names = Naming("east", "west", identity=True, rename=rules)
    assert [names.at_target(topic) for topic in ("orders", "pay.in", "orders2")] == [
        "archive",
        "old.in",
        "orders2",
    ]
    assert names.at_target("pay") == "never"
    for wrong in ("orders", "=new", "old=", "(=x", r"a=\1"):
        with pytest.raises(ValueError, match="no rule for names"):
            Rename.parse(wrong)
    for wrong in ("late=ba d/x", "late=..", "late=" + "x" * 250, "late=für"):
        with pytest.raises(ValueError, match="is no topic name"):
            Rename.parse(wrong)


@pytest.mark.parametrize(
    ("topic", "cycle"),
    [
        ("orders", False),
        ("west.orders", True),
        ("north.west.orders", True),
        ("north.orders", False),
        ("westorders", False),
        ("western.orders", False),
        ("west.", False),
        ("east.orders", False),
    ],
)
def test_a_topic_that_has_been_at_the_target_is_not_copied_there(topic, cycle):
    assert is_cycle(topic, EAST_WEST) is cycle


def test_circles_of_identical_names_are_seen_before_they_start():
    assert would_circle([("a", "b", True), ("b", "a", True)]) == [("a", "b", "a")]
    assert would_circle([("a", "b", True), ("b", "c", True), ("c", "a", True)]) == [("a", "b", "c", "a")]
    assert would_circle([("a", "b", True), ("b", "a", False)]) == []
    assert would_circle([("a", "b", True), ("a", "c", True)]) == []


@pytest.mark.parametrize(
    ("topic", "taken"),
    [
        ("orders", True),
        ("orders.eu", True),
        ("heartbeats", True),
        ("my-heartbeats", True),
        ("__consumer_offsets", False),
        ("mm2-offset-syncs.west.internal", False),
        ("isthmus-link.west-to-east.internal", False),
        ("connect-status.internal", False),
        ("orders.replica", False),
        ("west.orders", False),
        (".hidden", False),
    ],
)
def test_default_patterns(topic, taken):
    accepts = TopicFilter(EAST_WEST, (".*",), TOPICS_EXCLUDE).refuses(topic) is None
    assert accepts is taken


def test_exclusion_wins_patterns_match_whole_names_and_heartbeats_travel_on():
    chosen = TopicFilter(EAST_WEST, ("orders", "pay.*"), ("payroll", "team.*"))
    assert chosen.refuses("orders") is None
    assert chosen.refuses("orders2") is not None
    assert chosen.refuses("payments") is None
    assert "excluded" in chosen.refuses("payroll")
    assert chosen.refuses("heartbeats") is None
    assert chosen.refuses("north.south.heartbeats") is None  # or a chain's end sees nothing of its beginning
    assert "came from west" in chosen.refuses("west.heartbeats")
    assert "excluded" in chosen.refuses("team.heartbeats")
    assert TopicFilter(EAST_WEST, (), ()).refuses("orders") is not None


def test_each_pattern_stands_for_itself():
    taken = settings(topics=r"(?i)orders.*, (?P<x>a)b, (?P<x>c)d, (z)\1").topic_filter()
    assert [taken.refuses(name) for name in ("Orders-EU", "ab", "cd", "zz")] == [None] * 4
    assert taken.refuses("AB") is not None


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("orders-[0-9]{1,3}", "a comma ends a pattern"),
        ("payments, orders-[0-9]{1,3}", "a comma ends a pattern"),
        ("[a-z&&[^b]]+", "set intersection"),
    ],
)
def test_a_pattern_that_would_match_something_else_than_it_says_is_refused(pattern, why):
    with pytest.raises(ValueError, match=why):
        settings(topics=pattern)


def test_a_list_and_braces_without_a_comma_hold_any_pattern():
    assert settings(topics=["o{1,3}"]).topic_filter().refuses("ooo") is None
    assert settings(groups=r"o{3}, a\{b").groups == ("o{3}", r"a\{b")


@pytest.mark.parametrize("separator", ["/", " ", "ö"])
def test_a_separator_that_no_topic_name_may_hold_is_refused(separator):
    with pytest.raises(ValueError, match="may hold what topic names may"):
        settings(separator=separator)


def test_group_patterns():
    groups = NameFilter((".*",), GROUPS_EXCLUDE)
    assert groups.accepts("billing")
    assert not groups.accepts("console-consumer-123")
    assert not NameFilter((), ()).accepts("billing")


def test_internal_names():
    assert is_internal("__transaction_state")
    assert is_internal("a-internal")
    assert not is_internal("internal")


def test_patterns_may_be_written_as_one_text_with_commas():
    assert settings(topics="orders.*, pay.+").topics == ("orders.*", "pay.+")
    assert settings().progress_topic == "isthmus-link.east-to-west.internal"
    assert settings().name == "east->west"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"topics": ["("]}, "not a regular expression"),
        ({"target": {"alias": "east", "bootstrap": "b:2"}}, "both have the alias"),
        ({"source": {"alias": "ea.st", "bootstrap": "a:1"}}, "letters, digits"),
        ({"source": {"alias": "ea-st", "bootstrap": "a:1"}, "separator": "-"}, "separator"),
        ({"topic": ["x"]}, "Extra inputs"),
        ({"progress_interval_s": 0}, "greater than 0"),
    ],
)
def test_mistakes_in_settings_are_named(changes, text):
    with pytest.raises(ValidationError, match=text):
        settings(**changes)
