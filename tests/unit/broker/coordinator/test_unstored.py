"""What cannot be stored is said, and not five hundred times a second for each client that tries again."""

import logging

from broker.coordinator.unstored import PER_SECOND, Unstored
from protocol.errors import ErrorCode, KafkaError
from tests.support.clock import VirtualClock

WHY = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "__consumer_offsets-3: 1 in sync")


def test_one_line_a_second_for_each_and_the_next_counts_the_others(caplog):
    clock = VirtualClock()
    unstored = Unstored(clock.monotonic)
    with caplog.at_level(logging.WARNING):
        for _ in range(500):
            unstored.say("group 'a'", WHY)
        unstored.say("group 'b'", WHY)
        clock.advance(1.0)
        unstored.say("group 'a'", WHY)
    said = [each.getMessage() for each in caplog.records]
    assert [line.split(": ")[1] for line in said] == ["group 'a'", "group 'b'", "group 'a'"]
    assert "1 in sync" in said[0]
    assert said[2].endswith("(499 more like this were not logged)")


def test_a_thousand_groups_do_not_fill_the_disk_either(caplog):
    unstored = Unstored(VirtualClock().monotonic)
    with caplog.at_level(logging.WARNING):
        for number in range(1000):
            unstored.say(f"group 'g{number}'", WHY)
    assert len(caplog.records) == PER_SECOND
