"""Power and speed of a node from its load, its caps and the ambient temperature."""

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from joulie_simulator.hardware.shapes import Shape

NOISE = 0.01  # of the reading: a board's power sensor
# Measured on thousands of servers: Fan, Weber, Barroso, "Power provisioning for a warehouse-sized
# computer" (2007): idle + (full - idle) x (2u - u^1.4).
CURVATURE = 1.4
# How work follows watts under a cap, as work = watts^x. Published: a few percent lost at 60 %
# (V100 training), 10 to 15 % at 600 of 700 W (H100); this lies between.
WORK_EXPONENT = 0.5
SLOWEST = 0.1  # clocks have a minimum
COMFORT_C = 22.0  # up to here fans run at their minimum speed
FAN_SHARE_PER_DEGREE = 0.004
DAY_S = 86_400.0
COP = 3.0  # watts of heat that one watt of cooling removes


class Load(NamedTuple):
    """What the jobs of a node use."""

    cores: float = 0.0  # each by its utilisation
    cards: tuple[float, ...] = ()  # of each card in use, its utilisation
    each: tuple[float, ...] = ()  # of all cards, where they have different caps


class Caps(NamedTuple):
    """Percent of the maximum; None is no cap."""

    cpu_pct: int | None = None
    gpu_pct: int | None = None
    each: tuple[int | None, ...] = ()  # of all cards, in place of `gpu_pct`


class Draw(NamedTuple):
    watts: float
    cpu_speed: float  # 1: as fast as without a cap
    gpu_speed: float
    gpu_w: float = 0.0  # of all cards; part of `watts`
    cards: tuple[tuple[float, float], ...] = ()  # watts and speed of each, where they differ


def draw(shape: Shape, load: Load, caps: Caps, ambient_c: float) -> Draw:
    busy = min(1.0, load.cores / shape.cores)
    cpu_max = float(shape.cpu_max_w * shape.sockets)
    idle = cpu_max * shape.idle_share
    cpu_w, cpu_speed = _capped(
        idle, idle + (cpu_max - idle) * (2 * busy - busy**CURVATURE), cpu_max, caps.cpu_pct
    )
    cards = tuple(_each_card(shape, load, caps)) if caps.each else ()
    gpu_w, gpu_speed = (sum(w for w, _ in cards), 1.0) if cards else _cards(shape, load, caps)
    fans = 1 + FAN_SHARE_PER_DEGREE * max(0.0, ambient_c - COMFORT_C)
    return Draw((cpu_w + gpu_w) * fans, cpu_speed, gpu_speed, gpu_w, cards)


def card_watts(shape: Shape, use: Sequence[float], drawn: Draw) -> list[float]:
    """The power of each card by its utilisation, 0 without a job; together that of all cards."""
    cards = shape.cards
    if cards is None:
        return []
    added = [cards.added_w(each) if each else 0.0 for each in use]
    if drawn.cards:
        return [watts for watts, _ in drawn.cards]
    above_w, whole = max(0.0, drawn.gpu_w - cards.idle_w * cards.number), sum(added)
    return [cards.idle_w + (above_w * each / whole if whole else 0.0) for each in added]


def _cards(shape: Shape, load: Load, caps: Caps) -> tuple[float, float]:
    cards = shape.cards
    if cards is None:
        return 0.0, 1.0
    idle, full = float(cards.idle_w * cards.number), float(cards.max_w * cards.number)
    natural = min(full, idle + sum(map(cards.added_w, load.cards)))
    return _capped(idle, natural, full, caps.gpu_pct)


def _each_card(shape: Shape, load: Load, caps: Caps) -> Iterator[tuple[float, float]]:
    """Watts and speed of each card under its own cap."""
    cards = shape.cards
    if cards is not None:
        for busy, pct in zip(load.each, caps.each, strict=True):
            added_w = cards.added_w(busy) if busy else 0.0
            natural = min(float(cards.max_w), cards.idle_w + added_w)
            yield _capped(float(cards.idle_w), natural, float(cards.max_w), pct)


def _capped(idle: float, natural: float, full: float, cap_pct: int | None) -> tuple[float, float]:
    """Watts and speed under a cap; a cap does not reduce idle power."""
    limit = full * (100 if cap_pct is None else cap_pct) / 100
    if natural <= limit:
        return natural, 1.0
    drawn = max(idle, limit)
    share = (drawn - idle) / (natural - idle) if natural > idle else 1.0
    return drawn, max(SLOWEST, share**WORK_EXPONENT)


def reading_mw(watts: float, noise: random.Random) -> int:
    """The reading of the sensor in integer milliwatts, at least zero."""
    return max(0, round(watts * (1 + noise.gauss(0, NOISE)) * 1000))


# --- the room ---------------------------------------------------------------------------------


def ambient_c(now_s: float) -> float:
    """Coldest before dawn, warmest in the afternoon; time 0 is midnight."""
    return 23.0 + 6.0 * math.sin(2 * math.pi * (now_s / DAY_S - 10 / 24))


def cooling_w(it_w: float, ambient: float) -> float:
    """Watts of the chiller, which rise with the outside temperature."""
    return it_w / COP * (1 + 0.01 * (ambient - COMFORT_C))


def day_factor(now_s: float) -> float:
    """Relative load of the hour: lowest at 4:00, highest at 16:00, 1 on average over a day.

    The daily cycle of published simulations; the minimum is a quarter of the peak.
    """
    hour = now_s / 3600
    return (0.25 + 0.70 * (1 - math.cos(2 * math.pi * (hour - 4) / 24)) / 2) / 0.60
