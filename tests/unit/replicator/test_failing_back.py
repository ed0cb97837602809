"""Where a group goes on in a topic that two links write, one each way."""

import pytest

from replicator.failing_back import unread_at
from transfer.offset_map import OffsetMap, Run


def back(*runs):
    made = OffsetMap()
    for run in runs:
        made.append(Run(*run))
    return made


@pytest.mark.parametrize(
    ("own", "runs", "read_to", "expected"),
    [
        (10, [], 50, (10, [])),
        # ten of the source's own, then five of the target's from 10 on
        (10, [(10, 10, 5)], 15, (15, [])),
        (10, [(10, 10, 5)], 12, (12, [])),
        (10, [(10, 10, 5)], 10, (10, [])),
        (7, [(10, 10, 5)], 7, (7, [])),
        # something between that no link has written: a marker, or a record of the source
        (10, [(10, 12, 5)], 15, (17, [(10, 12)])),
        (10, [(10, 12, 5)], 10, (10, [])),
        (10, [(10, 10, 2), (20, 14, 3)], 21, (15, [(12, 14)])),
        # what was not read lies before what was
        (12, [(3, 4, 2), (20, 8, 2)], 5, (8, [])),
        (12, [(3, 4, 2), (20, 8, 2)], 4, (5, [])),
        (12, [(3, 4, 2), (20, 8, 2)], 30, (12, [])),
    ],
)
def test_nothing_unread_lies_before_it(own, runs, read_to, expected):
    assert unread_at(own, back(*runs), read_to) == expected
