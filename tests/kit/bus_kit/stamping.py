"""From events to messages and records: producers with a fixed clock."""

import itertools
from collections.abc import Callable

from bus_kit.clock import NOON, noon
from joulie_bus.events import AnyEvent, CapsSettable
from joulie_bus.log.producer import Producer
from joulie_bus.streams.records import Message, Record
from joulie_bus.streams.subjects import Stream, Subjects, cap_writer_name, stream_of

CLUSTER = Subjects("test")


def producer(name: str = "tester", boot: str = "b1") -> Producer:
    """A producer whose clock always shows noon."""
    return Producer(name, CLUSTER, lambda: NOON, boot)


def sender_of(event: AnyEvent, name: str = "tester") -> str:
    """The name of a producer that may write the event: `name`, where it may have any name."""
    return cap_writer_name(event.node) if isinstance(event, CapsSettable) else name


class Senders:
    """A producer of the test, and one beside it for each event that it may not write."""

    def __init__(self, name: str = "tester") -> None:
        self._name = name
        self._producers: dict[str, Producer] = {}

    def stamp(self, event: AnyEvent) -> Message:
        sender = sender_of(event, self._name)
        return self._producers.setdefault(sender, producer(sender)).stamp(event)


class Voices:
    """One producer per stream, as in a cluster.

    A single producer that numbers its events across streams is read out of order when one stream is
    read ahead of another, and many of its events then count as repeats.
    """

    def __init__(self, name: str, subjects: Subjects, clock: Callable[[], int]) -> None:
        self._of = {
            stream: Producer(f"{name}-{stream.rpartition('_')[2].lower()}", subjects, clock)
            for stream in Stream
        }

    def stamp(self, event: AnyEvent) -> Message:
        return self._of[stream_of(event)].stamp(event)


def records(
    *events: AnyEvent,
    name: str = "tester",
    boot: str = "b1",
    start_s: float = 0.0,
    step_s: float = 1.0,
) -> list[Record]:
    """The events as their streams store them, `step_s` apart.

    Each stream has its own producer and its own sequence. An event that only one program may write
    has that producer.
    """
    producers: dict[tuple[Stream, str], Producer] = {}
    numbers: dict[Stream, Callable[[], int]] = {}
    made = []
    for number, event in enumerate(events):
        stream = stream_of(event)
        count = numbers.setdefault(stream, itertools.count(1).__next__)
        at = noon(start_s + number * step_s)
        sender = sender_of(event, name)
        message = producers.setdefault((stream, sender), producer(sender, boot)).stamp(event)
        made.append(Record(stream, count(), at, message.data, message.subject))
    return made
