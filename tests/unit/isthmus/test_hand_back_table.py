"""What `isthmus links hand-back` and `links fail-groups-back` show."""

from isthmus.commands.link_fail_back import _show as _show_groups
from isthmus.commands.link_hand_back import _show
from protocol.types import TopicPartition
from replicator.failing_back import FailedBack
from replicator.mirrormaker.handing_back import HandedBack, Row


def test_what_changes_what_stays_and_why_is_shown(capsys):
    found = HandedBack(
        "mm2-offsets.east.internal",
        made=True,
        rows=[
            Row(TopicPartition("born", 0), None, 30),
            Row(TopicPartition("orders", 0), 1000, 2000, remarks=("gap orders-0 7..9 (retention)",)),
            Row(TopicPartition("orders", 1), 5, None),
            Row(TopicPartition("orders", 2), 8, 8),
            Row(TopicPartition("orders", 3), 9, 9, left="it is further"),
        ],
        others=4,
    )
    _show(found, dry_run=True)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split() for line in shown[1:5]] == [
        ["topic", "partition", "mirrormaker_at", "goes_on_at"],
        ["born", "0", "its", "start", "30"],
        ["orders", "0", "1000", "2000"],
        ["orders", "1", "5", "its", "start"],
    ]
    assert shown[0] == "mm2-offsets.east.internal would be made: MirrorMaker 2 has no progress there"
    assert shown[5:] == [
        "orders-0: gap orders-0 7..9 (retention)",
        "left: orders-3: it is further",
        "mm2-offsets.east.internal: 3 of 5 partitions would be set, 1 stand right already, 1 left; 4 that the"
        " link has nothing of stay",
    ]


def test_a_position_that_is_not_set_is_told_from_one_that_is(capsys):
    rows = [
        FailedBack("readers", "orders", 0, "east.orders", 12, "", old=4, new=14, exact=True),
        FailedBack(
            "readers", "orders", 1, "east.orders", 3, "", 9, 3, exact=True, why_not="it stands further"
        ),
    ]
    _show_groups(rows, {"shared": "a share group"}, dry_run=False)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[-3:] for line in shown[:3]] == [
        ["new", "exact", "set"],
        ["14", "True", "True"],
        ["3", "True", "False"],
    ]
    assert shown[-1] == "1 position was set, 0 stood right already, 1 not set; 1 group left as a whole"
