"""Whether the manifests of a log read each message of a stream exactly once."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.commit import Inputs
from joulie_projections.fold.manifest import Manifest, Range

Earlier = Callable[[Stream], int]


def _nothing(_: Stream) -> int:
    return 0


class PlacedRange(NamedTuple):
    """A range, and the position of its first message."""

    position: int
    range: Range


def joined_ranges(manifests: Iterable[Manifest]) -> list[PlacedRange]:
    """The ranges of consecutive manifests; those that join within a stream are one."""
    found: list[PlacedRange] = []
    newest: dict[Stream, int] = {}  # of each stream, its place in `found`
    for manifest in manifests:
        at = manifest.p_from
        for each in manifest.ranges:
            place = newest.get(each.stream, -1)
            if place >= 0 and found[place].range.last + 1 == each.first:
                before = found[place]
                whole = Range(each.stream, before.range.first, each.last)
                found[place] = PlacedRange(before.position, whole)
            else:
                newest[each.stream] = len(found)
                found.append(PlacedRange(at, each))
            at += each.count
    return found


class Joins:
    """Follows the manifests of a log in order, from its first one or from known positions on.

    Streams are numbered from 1 without gaps, so each range begins where the one before it of the
    same stream ended. Then each message up to the last range lies in exactly one manifest.
    """

    def __init__(self, inputs: Inputs | None = None, earlier: Earlier = _nothing) -> None:
        """`inputs`: how far each stream was read; of other streams `earlier` knows it."""
        self.read = {stream: at.sequence for stream, at in (inputs or {}).items()}
        self._earlier = earlier

    @classmethod
    def up_to(cls, manifest: Manifest, inputs: Inputs) -> "Joins":
        """Before a manifest; `inputs` are those after it."""
        joins = cls(inputs)
        for each in manifest.ranges:
            joins.read[each.stream] = min(joins.read.get(each.stream, each.last), each.first - 1)
        return joins

    def flaw(self, manifest: Manifest) -> str:
        """The first range that does not join; empty if all do."""
        found, at = "", manifest.p_from
        for each in manifest.ranges:
            what = self.add(PlacedRange(at, each))
            found = found or what
            at += each.count
        return found

    def add(self, found: PlacedRange) -> str:
        """Why the range does not join; empty if it does."""
        stream, first, last = found.range.stream, found.range.first, found.range.last
        if stream not in self.read:
            self.read[stream] = self._earlier(stream)
        expected, self.read[stream] = self.read[stream] + 1, last
        return _flaw(found.range, expected, found.position) if first != expected else ""

    def end_flaw(self, inputs: Inputs) -> str:
        """Compares with how far each stream was read according to its reader."""
        recorded = {stream: at.sequence for stream, at in inputs.items()}
        for stream in sorted(recorded.keys() | self.read.keys()):
            read, last = recorded.get(stream, 0), self.read.get(stream, 0)
            if read != last:
                return f"{stream} was read up to {read}, and the manifests end at {last}"
        return ""


def _flaw(found: Range, expected: int, position: int) -> str:
    if found.first > expected:
        these = _messages(found.stream, expected, found.first - 1)
        return f"{these} in no manifest: passed over before position {position}"
    if found.first < expected:
        these = _messages(found.stream, found.first, min(found.last, expected - 1))
        return f"{these} in two manifests, the second time from position {position} on"
    return ""


def _messages(stream: Stream, first: int, last: int) -> str:
    if first == last:
        return f"message {first} of {stream} is"
    return f"messages {first} to {last} of {stream} are"
