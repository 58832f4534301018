"""The power of processors that no meter covers, out of their load."""

from joulie_bus.events import HardwareDiscovered
from joulie_bus.metering.meters import Meter, NodePower, Part
from joulie_projections.hardware.guesses import IDLE_CPU_SHARE, guessed_cpu_max_w

MODEL = "processors by their load"
MODELLED = Meter("model", "processors", Part.PACKAGE)


def processors_mw(hardware: HardwareDiscovered, busy: float) -> int:
    """Idle power, and the rest in proportion to the share of time that is busy."""
    rated_mw = hardware.cpu_max_mw_per_socket * max(1, hardware.cpu_sockets)
    most_mw = rated_mw or guessed_cpu_max_w(hardware.cpu_cores) * 1000
    return round(most_mw * (IDLE_CPU_SHARE + (1 - IDLE_CPU_SHARE) * busy))


def with_processors(cards: NodePower, modelled_mw: int) -> NodePower:
    """The node's power, which is then modelled; that of its cards stays measured."""
    return cards._replace(
        power_mw=cards.power_mw + modelled_mw,
        provider=f"{cards.provider}, {MODEL}",
        meters=(*cards.meters, MODELLED),
        is_modelled=True,
    )
