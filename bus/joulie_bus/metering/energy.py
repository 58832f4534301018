"""The energy of one meter since the agent started, out of its power and its counter."""


class EnergyMeter:
    """Adds up energy. Power read each second fills the time between two readings of the counter.

    A counter is the truth: when it is read, its difference replaces what power added up to since
    the counter was read before. The total never falls, so that readers may subtract.
    """

    def __init__(self) -> None:
        self._sure_uj = 0  # up to the last reading of the counter
        self._since_uj = 0.0  # by power, since then
        self._shown_uj = 0
        self._last: tuple[float, int] | None = None  # time and power
        self._counted = False

    def saw_power(self, at_s: float, power_mw: int) -> None:
        """The mean of both powers counts for the time between them."""
        if self._last is not None:
            before_s, before_mw = self._last
            self._since_uj += (before_mw + power_mw) / 2 * max(0.0, at_s - before_s) * 1000
        self._last = (at_s, power_mw)

    def saw_counter(self, risen_uj: int | None) -> None:
        """The rise of the counter since it was read before; None if it is unknown."""
        if not self._counted or risen_uj is None:
            risen_uj = round(self._since_uj)
        self._counted = True
        self._sure_uj += risen_uj
        self._since_uj = 0.0

    def lost(self) -> None:
        """The meter cannot be read: the time until its next power is not filled."""
        self._last = None

    @property
    def total_uj(self) -> int:
        self._shown_uj = max(self._shown_uj, self._sure_uj + round(self._since_uj))
        return self._shown_uj
