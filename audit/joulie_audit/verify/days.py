"""Joins what was found in single days of an archive, each verified on its own."""

import json
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from itertools import pairwise
from typing import NamedTuple

import msgspec

from joulie_bus.errors import NotInTheLog


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """Of the positions or the entries of a day; hashes in hexadecimal digits."""

    first: int
    last: int
    before: str  # the hash of what comes before the first
    after: str  # that of the last


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """What a day has to join with the day before it."""

    day: str
    facts: Ends | None = None  # None: it has no part
    log: Ends | None = None
    begins: dict[str, int] = {}  # by stream: its first message
    reads: dict[str, int] = {}  # its last message
    signed_to: int = 0  # the newest entry that a head in it signs


class FoundDay(msgspec.Struct, frozen=True, kw_only=True):
    day: Day
    parts: int
    lost: int = 0
    flaw: str | None = None


class Sum(NamedTuple):
    first_day: str
    last_day: str
    parts: int
    positions: tuple[int, int]  # 0 for none
    entries: tuple[int, int]
    lost: int
    signed_to: int
    flaw: str | None


class _Found(msgspec.Struct):
    archive: FoundDay


def days_in(text: str) -> Iterator[FoundDay]:
    """What `joulie verify --archive DIR --day DAY --output json` printed, one after the other."""
    decode, at = json.JSONDecoder().raw_decode, 0
    try:
        while text[at:].strip():
            at += len(text[at:]) - len(text[at:].lstrip())
            found, at = decode(text, at)
            yield msgspec.convert(found, _Found).archive
    except (json.JSONDecodeError, msgspec.ValidationError) as error:
        raise NotInTheLog(
            f"What follows character {at} is no result of `joulie verify --day` ({error}). Nothing "
            "was summed. Give what the pods of the Job printed, and nothing else."
        ) from error


def summed(found: Sequence[FoundDay]) -> Sum:
    if not found:
        raise NotInTheLog("There is no result of a day. Nothing was summed.")
    days = sorted(found, key=lambda each: each.day.day)
    signed_to = max(each.day.signed_to for each in days)
    entries = _span([each.day.log for each in days])
    return Sum(
        days[0].day.day,
        days[-1].day.day,
        sum(each.parts for each in days),
        _span([each.day.facts for each in days]),
        entries,
        sum(each.lost for each in days),
        min(signed_to, entries[1]),
        _flaw(days, signed_to if entries[1] else 1),
    )


def _span(ends: Sequence[Ends | None]) -> tuple[int, int]:
    known = [each for each in ends if each is not None]
    return (known[0].first, known[-1].last) if known else (0, 0)


def _flaw(days: Sequence[FoundDay], signed_to: int) -> str | None:
    for each in days:
        if each.flaw is not None:
            return each.flaw
    for before, after in pairwise(days):
        expected = (date.fromisoformat(before.day.day) + timedelta(1)).isoformat()
        if after.day.day != expected:
            return f"{expected} is missing, or {after.day.day} was given twice"
    if not signed_to:
        return "no signed head covers any of its entries"
    every = [each.day for each in days]
    return (
        _broken("positions", [(each.day, each.facts) for each in every])
        or _broken("entries", [(each.day, each.log) for each in every])
        or _broken_stream(every)
    )


def _broken(what: str, ends: Sequence[tuple[str, Ends | None]]) -> str | None:
    known = [(day, each) for day, each in ends if each is not None]
    for (_, before), (day, after) in pairwise(known):
        if (after.first, after.before) != (before.last + 1, before.after):
            return f"the {what} of {day} do not continue those of the day before"
    return None


def _broken_stream(days: Sequence[Day]) -> str | None:
    read: dict[str, int] = {}
    for each in days:
        for stream, first in each.begins.items():
            if first != read.get(stream, first - 1) + 1:
                return f"messages of {stream} before {first} are not in {each.day}, nor before it"
        read |= each.reads
    return None
