"""What a count of the messages of one copy means."""

from joulie_bus.jetstream.hole_search import Counted, missing_in
from joulie_bus.streams.records import StreamState
from joulie_bus.streams.subjects import Stream

WHOLE = StreamState(Stream.OBS, "", 1, 100, ("n0", "n1", "n2"))


def counted(held: int) -> Counted:
    return Counted("n1", "joulie-look", held)


def test_a_copy_that_holds_fewer_messages_lacks_the_others() -> None:
    assert missing_in(counted(97), WHOLE, WHOLE) == 3


def test_messages_that_were_dropped_between_the_looks_are_not_missing() -> None:
    assert missing_in(counted(97), WHOLE, WHOLE._replace(first=4)) == 0


def test_a_copy_that_is_late_lacks_nothing_for_good() -> None:
    late = WHOLE._replace(late=("n1",))

    assert missing_in(counted(97), late, WHOLE) == 0
    assert missing_in(counted(97), WHOLE, late) == 0
    assert missing_in(counted(97), WHOLE._replace(late=("n2",)), WHOLE) == 3
