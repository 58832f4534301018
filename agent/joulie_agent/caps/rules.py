"""What the writer may do to one limit.

A limit belongs to the writer if it is what the writer set last, or is about to set. It may also be
taken while it is what it was before: the default of the hardware, or the value that is remembered.
Any other value was set by another program or a person: it is left as it is, and never overwritten.
"""

from typing import NamedTuple


class Limit(NamedTuple):
    """One limit as the hardware shows it, in its own unit: microwatts, milliwatts or MHz.

    `default` is None where the hardware names none, and `low` and `high` bound what it accepts.
    """

    now: int
    low: int | None = None
    high: int | None = None
    default: int | None = None
    grain: int = 0  # hardware may show a value that was set with this difference

    def shows(self, value: int) -> bool:
        return abs(self.now - value) <= self.grain


class Remembered(NamedTuple):
    """What is kept on disk about a limit that was taken: its value before, and the writer's own.

    `ours` has two values between the note of a new one and its confirmation.
    """

    before: int
    ours: tuple[int, ...] = ()


class Apply(NamedTuple):
    """Note `remembered` on disk, then set the value, read it back, and note that it is set."""

    value: int
    remembered: Remembered


class Keep(NamedTuple):
    """The limit is as ordered."""

    remembered: Remembered


class Restore(NamedTuple):
    """Set the value from before, then forget the limit."""

    value: int


class Forget(NamedTuple):
    """The limit is not the writer's: leave it. `why` is empty if nothing is wrong."""

    why: str = ""


class Refuse(NamedTuple):
    """The limit cannot be set as ordered, and stays as it is."""

    why: str


Step = Apply | Keep | Restore | Forget | Refuse


def next_step(limit: Limit, wanted: int | None, remembered: Remembered | None) -> Step:
    """The step towards the ordered value; `wanted` is None where no cap is ordered."""
    if remembered is None:
        return Forget() if wanted is None else _take(limit, wanted)
    is_as_before = limit.shows(remembered.before)
    if not is_as_before and not any(map(limit.shows, remembered.ours)):
        return Forget("the limit was changed by another program or a person, and is left as it is")
    if wanted is None:
        return Forget() if is_as_before else Restore(remembered.before)
    value = clamped(limit, wanted)
    if limit.shows(value) and remembered.ours == (value,):
        return Keep(remembered)
    # A value that is neither the current one nor the new one can no longer be on the hardware.
    possible = {value} if is_as_before else {value, limit.now}
    return Apply(value, Remembered(remembered.before, tuple(sorted(possible))))


def obstacle(limit: Limit, remembered: Remembered | None) -> str:
    """Why an order would be refused as the limit is now; empty if it would be carried out."""
    step = next_step(limit, limit.now, remembered)
    return step.why if isinstance(step, Refuse | Forget) else ""


def confirmed(step: Apply) -> Remembered:
    """What is remembered once the value was read back."""
    return Remembered(step.remembered.before, (step.value,))


def clamped(limit: Limit, wanted: int) -> int:
    """The value within what the hardware accepts."""
    low = limit.low if limit.low is not None else wanted
    high = limit.high if limit.high is not None else wanted
    return min(max(wanted, low), high)


def _take(limit: Limit, wanted: int) -> Step:
    """A limit that is not the default already has an owner, unless no default is known."""
    if limit.default is not None and not limit.shows(limit.default):
        return Refuse("the limit is not the default: another program or a person has set it")
    value = clamped(limit, wanted)
    if limit.shows(value):
        return Forget()  # it already is as ordered, and nothing needs to be given back
    return Apply(value, Remembered(limit.now, (value,)))
