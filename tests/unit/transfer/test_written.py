"""Which leaders have to be asked, and what their answers mean."""

from transfer.epochs import Epochs
from transfer.kafka.written import Written


def test_a_leader_of_a_later_epoch_is_asked_once_something_was_written():
    written = Written()
    written.led_by(3)
    assert not written.doubts(4)
    written.acknowledged(0, 10)
    assert not written.doubts(3)
    assert written.doubts(4)
    assert (written.epochs.last, written.kept(3, 10), written.kept(3, 9)) == (3, True, False)
    written.led_by(4)
    assert not written.doubts(4)


def test_a_log_that_knows_an_earlier_epoch_only_lacks_what_was_written_later():
    """However long that epoch is there: replicas whose logs parted before (KIP-101)."""
    written = Written()
    for epoch, base in ((3, 0), (5, 10)):
        written.led_by(epoch)
        written.acknowledged(base, 10)
    assert written.epochs.common_end(3, 15) == 10
    assert not written.kept(3, 15)
    assert written.kept(5, 20)


def test_of_what_was_written_before_a_leader_that_was_believed_only_that_is_known():
    written = Written(Epochs(), 50)
    assert not written.doubts(7), "nothing is known to ask about"
    written.led_by(7)
    assert written.doubts(8)
    assert written.kept(6, 50)
    assert not written.kept(6, 49)


def test_a_leader_that_tells_nothing_is_believed():
    written = Written(Epochs([(3, 0)]), 10)
    assert written.kept(-1, -1)
    assert not written.doubts(-1)


def test_a_write_before_the_end_is_behind_a_loss():
    written = Written(Epochs([(3, 0)]), 10)
    written.led_by(4)
    written.acknowledged(5, 2)
    assert (written.end, written.epochs) == (7, Epochs([(3, 0), (4, 5)]))


def test_an_epoch_between_two_that_are_known_tells_nothing_of_the_earlier_one():
    """It may have begun earlier than that one ended here (KIP-279)."""
    written = Written(Epochs([(3, 0), (5, 10)]), 10)
    assert not written.kept(4, 20)
    assert written.kept(3, 10)


def test_a_log_that_goes_on_where_it_parted_may_have_what_was_taken_for_lost():
    """Its leader led before, and has not cut off what another one did not have."""
    written = Written(Epochs([(3, 0), (5, 10)]), 10, lost_end=20)
    assert not written.kept(3, 15)
    assert written.kept(3, 10), "it has none of that"
    assert written.kept(5, 12), "it is the one that did not have it"
    written.led_by(5)
    written.acknowledged(10, 15)
    assert not written.kept(3, 20), "it lacks what was written since"


def test_where_the_log_parted_is_behind_what_was_lost():
    written = Written(Epochs([(3, 0), (5, 30)]), 30, lost_end=20)
    assert written.kept(3, 35)


def test_a_write_before_the_end_tells_what_was_lost():
    written = Written(Epochs([(3, 0)]), 10)
    written.led_by(4)
    written.acknowledged(5, 2)
    assert written.lost_end == 10


def test_a_leader_is_asked_also_where_nothing_is_left_of_what_was_written():
    """It may have it still."""
    written = Written(Epochs([(5, 0)]), 0, lost_end=20)
    assert written.doubts(6)
    assert not written.kept(3, 20)
    assert written.kept(5, 0)
    assert not Written(Epochs([(5, 0)]), 0).doubts(6), "nothing was written"
