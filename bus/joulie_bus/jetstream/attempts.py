"""How long one attempt to connect may take, and the pause before the next one. No I/O, no clock.

Thousands of agents connect at once after a restart of the broker, and are served one by one.
If each attempt ended after two seconds, the broker would spend its time on connections that are
closed already: none would be established, not even that of the auth callout. An attempt that begins
before the auth callout is connected fails, so the first one must not take long either.
"""

import random
from collections.abc import Callable

FIRST_S = 2.0  # a server that answers nothing is left for another one after this
FIRST_OF_MANY_S = 8.0
LONGEST_S = 20.0  # more than the broker's patience with its auth callout
PAUSE_S = (0.2, 0.5)
LONG_PAUSE_S = (2.5, 5.0)


class Attempts:
    """Those since the client was last connected. Each may take twice as long as the one before, if
    that one ran out of time: a server that refuses is not busy, and after it a silent one is left
    as soon as at first. `one_of_many` takes more time after each attempt, also for its pauses."""

    def __init__(
        self, *, one_of_many: bool, draw: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._one_of_many = one_of_many
        self._first_s = FIRST_OF_MANY_S if one_of_many else FIRST_S
        self._draw = draw
        self._made = self._ran_out = 0

    def begin(self) -> tuple[float, float]:
        """The seconds that this attempt may take, and those of the pause after it."""
        longer = 2.0 ** min(self._made if self._one_of_many else self._ran_out, 8)
        patience_s, pause_s = min(LONGEST_S, self._first_s * longer), self._draw(*PAUSE_S)
        if self._one_of_many:
            pause_s = min(pause_s * longer, self._draw(*LONG_PAUSE_S))
        self._made += 1
        return patience_s, pause_s

    def ran_out(self) -> None:
        """The server did not answer in the time of this attempt."""
        self._ran_out += 1

    def succeeded(self) -> None:
        self._made = self._ran_out = 0
