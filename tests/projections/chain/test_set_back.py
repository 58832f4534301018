"""The entry that records a database that was set back."""

from bus_kit import CLUSTER, noon, one_of_each
from joulie_bus.events import StateSetBack, codec
from joulie_projections.chain.set_back import message_of


def test_a_database_that_was_set_back_gives_one_entry_of_the_projector() -> None:
    [event] = [each for each in one_of_each() if isinstance(each, StateSetBack)]
    message = message_of(event, noon(), CLUSTER)
    envelope = codec.open_envelope(message.data, "it")

    assert message == message_of(event, noon(), CLUSTER)
    assert message.subject == CLUSTER.decisions("projector")
    assert (envelope.id, envelope.ts) == (f"set-back:{event.incarnation}:1", noon())
    assert codec.read(envelope, "it") == event
