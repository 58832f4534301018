"""What the rest of a card is worth, by the prices of a linear program over cards as bins.

The program fills cards with patterns of pods, each pod asking for one part of a card or a whole
card, and maximises what is in use. Its optimum is an upper bound for any placement of these pods,
because it ignores cores, memory, nodes and models. Its dual prices tell what a card, and by them
what any rest of a card, can still be of use for.

Column generation with a dense basis. Every operation is one on Python floats in a fixed order, so
that the result is bit-identical on every machine.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

PARTS = 100  # parts of a card
_ENOUGH = 1e-9  # a column that gains less does not enter
_ROUNDS = 400  # prices are valid, and the bound with them, after any number of rounds


class Prices(NamedTuple):
    bound: float  # parts in use, per card
    worth: tuple[float, ...]  # of a rest of 0 to PARTS parts, in parts


class _Basis:
    """The basic columns of the program: one row for each size, and one for the cards."""

    def __init__(self, demand: Sequence[float]) -> None:
        rows = len(demand) + 1
        self.inverse = [[float(row == column) for column in range(rows)] for row in range(rows)]
        self.amounts = [*demand, 1.0]
        self.costs = [0.0] * rows

    def duals(self) -> list[float]:
        found = [0.0] * len(self.costs)
        for cost, row in zip(self.costs, self.inverse, strict=True):
            if cost:
                for at, value in enumerate(row):
                    found[at] += cost * value
        return found

    def enter(self, column: Sequence[float], cost: float) -> bool:
        """Replaces the basic column that limits the new one. False if none does."""
        moved = [
            sum(one * other for one, other in zip(row, column, strict=True)) for row in self.inverse
        ]
        ratios = [
            (amount / by, at)
            for at, (amount, by) in enumerate(zip(self.amounts, moved, strict=True))
            if by > _ENOUGH
        ]
        if not ratios:
            return False
        self._pivot(min(ratios)[1], moved)
        self.costs[min(ratios)[1]] = cost
        return True

    def _pivot(self, leaving: int, moved: Sequence[float]) -> None:
        pivot, share = self.inverse[leaving], self.amounts[leaving] / moved[leaving]
        pivot = [value / moved[leaving] for value in pivot]
        for at, by in enumerate(moved):
            if by:  # the row of the leaving column is replaced below
                self.inverse[at] = [
                    value - by * other for value, other in zip(self.inverse[at], pivot, strict=True)
                ]
                self.amounts[at] = max(0.0, self.amounts[at] - by * share)
        self.inverse[leaving], self.amounts[leaving] = pivot, share


def prices_of(demand: Mapping[int, float]) -> Prices:
    """`demand`: pods per card, by their parts of a card (1 to PARTS)."""
    sizes = sorted(demand)
    basis = _Basis([demand[size] for size in sizes])
    best: Prices | None = None
    for _ in range(_ROUNDS):
        duals = basis.duals()
        found, pattern = _priced(sizes, demand, [max(0.0, price) for price in duals[:-1]])
        best = found if best is None or found.bound < best.bound else best
        negative = min(range(len(duals)), key=duals.__getitem__)
        if duals[negative] < -_ENOUGH:  # a slack enters
            column, cost = [float(at == negative) for at in range(len(duals))], 0.0
        else:
            column, cost = (
                [*pattern, 1.0],
                sum(size * count for size, count in zip(sizes, pattern, strict=True)),
            )
            gain = cost - sum(one * other for one, other in zip(duals, column, strict=True))
            if gain < _ENOUGH:
                break
        if not basis.enter(column, cost):
            break
    assert best is not None
    return best


def _priced(
    sizes: Sequence[int], demand: Mapping[int, float], prices: Sequence[float]
) -> tuple[Prices, list[float]]:
    """The bound and the worth of rests under these prices, and the pattern worth most."""
    worth, last = [0.0] * (PARTS + 1), [-1] * (PARTS + 1)
    for rest in range(1, PARTS + 1):
        worth[rest] = worth[rest - 1]
        for at, size in enumerate(sizes):
            if size > rest:
                break
            value = worth[rest - size] + (size - prices[at])
            if value > worth[rest]:
                worth[rest], last[rest] = value, at
    pattern, rest = [0.0] * len(sizes), PARTS
    while rest > 0:
        at = last[rest]
        if at >= 0:
            pattern[at] += 1.0
        rest -= sizes[at] if at >= 0 else 1
    bound = worth[PARTS] + sum(
        demand[size] * price for size, price in zip(sizes, prices, strict=True)
    )
    return Prices(bound, tuple(worth)), pattern
