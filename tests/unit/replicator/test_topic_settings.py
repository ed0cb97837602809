"""Settings of mirrored topics: whose word counts, key by key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.client import ConfigEntry, ConfigSource
from replicator.filters import PatternList
from replicator.settings import CONFIG_PROPERTIES_EXCLUDE
from replicator.topic_settings import Action, CopyRule, Owner, compare

TOPIC, DEFAULT = ConfigSource.TOPIC, ConfigSource.DEFAULT
RULE = CopyRule(PatternList(CONFIG_PROPERTIES_EXCLUDE))
FROM_SOURCE = CopyRule(PatternList(CONFIG_PROPERTIES_EXCLUDE), source_defaults=True)


def entry(value, source=TOPIC, *, read_only=False, secret=False):
    return ConfigEntry(value, source, read_only, secret)


def differ(here, there, ours=None, rule=RULE):
    found = list(compare({"k": here} if here else {}, {"k": there} if there else {}, ours or {}, rule))
    assert len(found) <= 1
    return (found[0].owner, found[0].action) if found else None


LINK_SETS, LINK_TAKES_BACK = (Owner.LINK, Action.SET), (Owner.LINK, Action.TAKE_BACK)
LEFT, UNKNOWN = (Owner.TARGET, Action.NONE), (Owner.LINK, Action.NONE)


@pytest.mark.parametrize(
    ("here", "there", "ours", "rule", "expected"),
    [
        (entry("1"), entry("2", DEFAULT), {}, RULE, LINK_SETS),
        (entry("1"), entry("2"), {}, RULE, LINK_SETS),
        (entry("1"), entry("1"), {}, RULE, None),
        (entry("1"), None, {}, RULE, UNKNOWN),
        (entry("1", DEFAULT), entry("1"), {"k": "1"}, RULE, LINK_TAKES_BACK),
        (entry("9", DEFAULT), entry("1"), {"k": "1"}, RULE, LINK_TAKES_BACK),
        (None, entry("1"), {"k": "1"}, RULE, LINK_TAKES_BACK),
        (entry("9", DEFAULT), entry("2"), {"k": "1"}, RULE, LEFT),
        (entry("9", DEFAULT), entry("2"), {}, RULE, LEFT),
        (entry("9", DEFAULT), entry("8", DEFAULT), {}, RULE, LEFT),
        (entry("9", DEFAULT), entry("8", DEFAULT), {}, FROM_SOURCE, LINK_SETS),
        (entry("9", ConfigSource.DYNAMIC_DEFAULT_BROKER), entry("8"), {}, FROM_SOURCE, LINK_SETS),
        (entry("9", ConfigSource.STATIC_BROKER), entry("8", DEFAULT), {}, FROM_SOURCE, LEFT),
        (entry("9", read_only=True), entry("8", DEFAULT), {}, RULE, LEFT),
        (entry(None, secret=True), entry(None, secret=True), {}, RULE, None),
    ],
)
def test_the_rule(here, there, ours, rule, expected):
    assert differ(here, there, ours, rule) == expected


@pytest.mark.parametrize("key", ["min.insync.replicas", "message.timestamp.type"])
def test_excluded_keys_are_the_targets_even_if_the_link_had_set_them_once(key):
    (found,) = compare({key: entry("2")}, {key: entry("1")}, {key: "1"}, RULE)
    assert (found.owner, found.action) == LEFT
    assert found.why == "named by config.properties.exclude"


VALUES = st.sampled_from(["1", "2", "3"])
KEYS = ["a", "b", "min.insync.replicas"]
SIDE = st.dictionaries(st.sampled_from(KEYS), VALUES)


@given(st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=6))
def test_what_the_link_did_not_set_it_never_takes_back(history):
    """The sync, step by step, with somebody else who changes the target in between."""
    target, ours = {}, {}
    for source, by_hand in history:
        target |= by_hand
        foreign = {key for key, value in target.items() if ours.get(key) != value}
        here = {key: entry(source.get(key, "0"), TOPIC if key in source else DEFAULT) for key in KEYS}
        there = {key: entry(target.get(key, "0"), TOPIC if key in target else DEFAULT) for key in KEYS}
        for found in compare(here, there, ours, RULE):
            if found.action is Action.SET:
                target[found.key] = found.source
            elif found.action is Action.TAKE_BACK:
                assert found.key not in foreign
                del target[found.key]
        ours = RULE.to_copy(here)
        assert {key: target.get(key) for key in ours} == ours
        assert "min.insync.replicas" not in ours
