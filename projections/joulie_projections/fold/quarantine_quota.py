"""Limits what the quarantine stores of a commit: every position, and some of the bodies.

A producer that sends only invalid messages must not fill the database. Replays and rebuilds need
every position that was skipped; operators need some of the messages.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

import msgspec

from joulie_projections.fold.commit import Poison

BODIES_PER_SUBJECT = 100  # messages of one subject in one commit stored with their body
BODIES_PER_COMMIT = 1000  # of all subjects
BODY_BYTES_PER_COMMIT = 4 * 1024 * 1024  # of stored bodies
SUBJECTS_PER_COMMIT = 100  # with a row of their own for messages without body
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, ...]).decode


def within_quota(poison: Sequence[Poison]) -> list[Poison]:
    """The rows to store for a commit, by position. The first messages keep their bodies."""
    whole: list[Poison] = []
    others: dict[tuple[str, str], list[Poison]] = {}
    counts: dict[tuple[str, str], int] = {}
    size = 0
    for each in poison:
        about = each.stream, each.subject
        count = counts[about] = counts.get(about, 0) + 1
        fits = size + len(each.body) <= BODY_BYTES_PER_COMMIT and len(whole) < BODIES_PER_COMMIT
        if fits and count <= BODIES_PER_SUBJECT:
            size += len(each.body)
            whole.append(each)
        else:
            group = (
                about if about in others or len(others) < SUBJECTS_PER_COMMIT else (each.stream, "")
            )
            others.setdefault(group, []).append(each)
    return sorted([*whole, *(_grouped(group, each) for (_, group), each in others.items())])


def _grouped(subject: str, poison: Sequence[Poison]) -> Poison:
    """One row at the first position, with the distances between the further positions."""
    first = poison[0]
    rest = [after.position - before.position for before, after in pairwise(poison)]
    return first._replace(body=b"", subject=subject, rest=_encode(rest))


def is_single(poison: Poison) -> bool:
    """Reports whether the row stands for one message."""
    return not poison.rest


def positions_of(poison: Poison) -> list[int]:
    """Every position that the row stands for."""
    rest = _decode(poison.rest) if poison.rest else ()
    return list(accumulate(rest, initial=poison.position))


def all_positions(poison: Iterable[Poison]) -> frozenset[int]:
    return frozenset(position for each in poison for position in positions_of(each))
