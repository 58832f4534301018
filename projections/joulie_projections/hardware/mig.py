"""NVIDIA MIG profiles: the share of a card that a slice is, and the cards behind a mix.

A profile such as `3g.20gb` names compute slices and memory. Most cards have seven compute and
eight memory slices; an A30 and an RTX PRO 6000 have four of each. A resource name does not include
the card model, so a profile is matched against the cards that offer it.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

# `1g.5gb`, `1g.10gb+me` (as a resource `1g.10gb.me`), `1c.3g.20gb`.
_PROFILE = re.compile(r"(?:(\d)c\.)?([1-9])g\.(\d+)gb(?:[.+-].+)?")


class Profile(NamedTuple):
    compute: int  # compute slices
    instance: int  # slices of its GPU instance; larger if instances are shared
    gb: int


class Card(NamedTuple):
    slices: int  # compute slices
    parts: int  # memory slices
    gb: int


_PARTS = {7: frozenset({(1, 1), (1, 2), (2, 2), (3, 4), (4, 4), (7, 8)}),
          4: frozenset({(1, 1), (2, 2), (4, 4)})}  # fmt: skip
# A30; A100 40 GB; A100, H100; H100 NVL; H20, GH200; H200; B200; GB200; B300; GB300; RTX PRO 6000.
_OF_SEVEN = (40, 80, 94, 96, 141, 180, 186, 269, 278)
CARDS = (Card(4, 4, 24), *(Card(7, 8, gb) for gb in _OF_SEVEN), Card(4, 4, 96))
_FOURTHS = frozenset({(1, 6), (2, 12), (4, 24), (1, 24), (2, 48), (4, 96)})


def profile_of(text: str) -> Profile | None:
    """Parses a profile name; None if it is not one."""
    match = _PROFILE.fullmatch(text.lower())
    if match is None:
        return None
    instance = int(match[2])
    return Profile(min(instance, int(match[1] or instance)), instance, int(match[3]))


def fraction(profile: Profile) -> Fraction:
    """The share of a card: fourths for profiles of cards with four slices, else sevenths."""
    slices = 4 if (profile.instance, profile.gb) in _FOURTHS else 7
    return min(Fraction(1), Fraction(profile.compute, slices))


def cards(mix: Mapping[Profile, int], gb: int = 0) -> int:
    """The smallest number of cards that provides this mix; with this memory size, if known."""
    if not mix:
        return 0
    matching = [card for card in CARDS if all(_parts(card, profile) for profile in mix)]
    known = [card for card in matching if card.gb == gb]
    if not matching:
        return _ceil(sum(fraction(profile) * count for profile, count in mix.items()))
    return min(_cards(card, mix) for card in known or matching)


def _cards(card: Card, mix: Mapping[Profile, int]) -> int:
    instances = {
        profile: _ceil(Fraction(count * profile.compute, profile.instance))
        for profile, count in mix.items()
    }
    compute = sum(profile.instance * count for profile, count in instances.items())
    memory = sum(_parts(card, profile) * count for profile, count in instances.items())
    return max(_ceil(Fraction(compute, card.slices)), _ceil(Fraction(memory, card.parts)))


def _parts(card: Card, profile: Profile) -> int:
    """Memory slices that the profile uses on this card; 0 if the card does not offer it."""
    parts = round(profile.gb * card.parts / card.gb)
    is_near = abs(profile.gb - parts * card.gb / card.parts) < 1
    return parts if is_near and (profile.instance, parts) in _PARTS[card.slices] else 0


def _ceil(value: Fraction | int) -> int:
    return -int(-value // 1)
