"""The shortest list of faults with which a run still fails: delta debugging."""

from collections.abc import Callable, Sequence

from simulated_faults import Fault

Fails = Callable[[list[Fault]], bool]


def shrunk(faults: Sequence[Fault], fails: Fails) -> list[Fault]:
    """Leaves out halves, then quarters, down to single faults, as long as the run fails."""
    left, parts = list(faults), 2
    while left:
        size = max(1, len(left) // parts)
        smaller = _failing_without_a_part(left, size, fails)
        if smaller is not None:
            left, parts = smaller, max(2, parts - 1)
        elif size == 1:
            return left
        else:
            parts *= 2
    return left


def _failing_without_a_part(faults: list[Fault], size: int, fails: Fails) -> list[Fault] | None:
    for start in range(0, len(faults), size):
        others = faults[:start] + faults[start + size :]
        if fails(others):
            return others
    return None
