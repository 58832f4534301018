"""What is left of a batch of which messages aged out before they were archived."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from joulie_audit.archive.fact_source import FactSource
from joulie_bus.errors import NeverArchived
from joulie_bus.streams.records import Record
from joulie_bus.streams.subjects import Stream
from joulie_projections.fold.manifest import Manifest


class Piece(NamedTuple):
    """Consecutive records of a batch, and the position before them."""

    before: int
    records: Sequence[Record]


async def pieces_of(facts: FactSource, manifest: Manifest) -> list[Piece]:
    """The whole batch as one piece, or those streams of it that no message is lost of."""
    try:
        return [Piece(manifest.p_from - 1, await facts.of(manifest))]
    except NeverArchived:
        held: dict[Stream, list[Record]] = {}
        for stream in {place.stream for place in manifest.ranges}:
            with contextlib.suppress(NeverArchived):
                held[stream] = await facts.of(manifest, frozenset((stream,)))
        return list(_placed(manifest, held))


def _placed(manifest: Manifest, held: Mapping[Stream, Sequence[Record]]) -> Iterator[Piece]:
    before, taken = manifest.p_from - 1, dict.fromkeys(held, 0)
    for place in manifest.ranges:
        if place.stream in held:
            first = taken[place.stream]
            yield Piece(before, held[place.stream][first : first + place.count])
            taken[place.stream] += place.count
        before += place.count
