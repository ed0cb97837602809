"""What `isthmus replicate FILE --check` foretells, from one look at both clusters."""

from protocol.client import PartitionMetadata, TopicMetadata
from protocol.errors import ErrorCode
from replicator.discovery import Found, Wanted
from replicator.plan import LinkPlan, topics_of_plan


def wanted(name: str) -> Wanted:
    rows = {0: PartitionMetadata(1, 0, (1,), (1,))}
    return Wanted(TopicMetadata(name, bytes(16), ErrorCode.NONE, False, rows), f"east.{name}", None)


def test_a_mirror_whose_name_is_too_long_is_not_said_to_be_made() -> None:
    longest, too_long = "l" * 244, "l" * 245
    found = Found({name: wanted(name) for name in (longest, too_long)}, {"__x": "internal topic"})
    plan = LinkPlan("east->west")
    topics_of_plan(plan, found)
    assert [row["topic"] for row in plan.topics] == [longest]
    assert plan.not_copied.keys() == {too_long, "__x"}
    why = plan.not_copied[too_long]
    assert why.startswith("its mirror's name would have 250 characters, and no topic may have more than 249")
    assert "use a shorter alias" in why
