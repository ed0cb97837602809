"""The YAML has every setting of a link, with the same default, and a page that lists them."""

import re

import pytest

from replicator.settings import ClusterEnd, LinkSettings
from replicator.workers.control import LIVE_SETTINGS
from tools.generate_link_settings_docs import DOCUMENT, document, names_of_mirrormaker, rows
from topology.links import link_between
from topology.models import Link

ELSEWHERE = {"source", "target", "take_over", "rename", "shared", "widens", "appends"}
"""Said otherwise in a file (`take_over_mirrormaker`), or of ad-hoc copies only."""
ENDS = (ClusterEnd(alias="east", bootstrap="a:1"), ClusterEnd(alias="west", bootstrap="b:1"))


def test_no_setting_of_a_link_is_missing_in_the_yaml():
    assert LinkSettings.model_fields.keys() - Link.model_fields.keys() == ELSEWHERE


def test_a_link_of_which_nothing_is_said_has_the_defaults_of_a_link():
    assert link_between(*ENDS, Link()) == LinkSettings(source=ENDS[0], target=ENDS[1])


def test_what_the_file_says_arrives_at_the_link():
    said = Link.model_validate({"flow": {"fetch_max_wait_ms": 7}, "transaction_timeout_s": 60})
    found = link_between(*ENDS, said)
    assert (found.flow.fetch_max_wait_ms, found.transaction_timeout_s) == (7, 60)


@pytest.mark.parametrize("name", sorted(Link.model_fields.keys() & LinkSettings.model_fields.keys()))
def test_the_file_refuses_what_the_link_would(name):
    """The same bounds: else a file is valid and its link is not."""
    if name.endswith("exclude") or name in ("topics", "groups", "flow"):
        return
    here, there = (
        {
            key: value
            for key, value in model.model_json_schema()["properties"][name].items()
            if key != "description"
        }
        for model in (Link, LinkSettings)
    )
    assert here == there


def test_the_page_is_up_to_date():
    assert DOCUMENT.read_text(encoding="utf-8") == document(), (
        "run python -m tools.generate_link_settings_docs"
    )


def test_the_page_names_what_can_be_changed_and_what_mirrormaker_calls_it():
    table = {row[0].strip("`"): row for row in rows()}
    assert {name for name, row in table.items() if row[3] == "now"} == LIVE_SETTINGS
    assert "`emit.checkpoints.interval.seconds`" in table["emit_checkpoints_interval_s"][5]
    assert "`consumer.auto.offset.reset`" in table["start"][5]
    assert names_of_mirrormaker().keys() <= table.keys()
    assert not [row for row in table.values() if not re.search(r"\w", row[4])]
    assert "bytes per second" in table["rate_limit"][1]
