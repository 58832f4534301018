"""What a saving by sleep depends on beside the jobs: power, times, and which nodes sleep."""

from collections.abc import Mapping
from typing import NamedTuple

from joulie_simulator.energy.fleet import ASLEEP, CURVED, MEASURED, QUARTER, Asleep, IdleModel

WAKE_MINUTES = 5


class Conditions(NamedTuple):
    idle: IdleModel = MEASURED
    asleep: Asleep = ASLEEP
    wake_minutes: int = WAKE_MINUTES  # a waking node draws its idle power
    gpu_nodes_sleep: bool = True
    weight: int = 1  # of the extender in kube-scheduler's configuration
    lost_wakes: float = 0.0  # share of the nodes that draw their idle power and never come back
    cards_are_known: bool = False  # agents or DRA report each card and the pods that hold it
    first_plan_minute: int = 0


USUAL = "usual"  # all nodes sleep, a CPU node idles at half of its peak
# Each differs from the usual ones in one thing.
CONDITIONS: Mapping[str, Conditions] = {
    USUAL: Conditions(),
    "only CPU nodes sleep": Conditions(gpu_nodes_sleep=False),
    "idle 25 % of peak": Conditions(idle=QUARTER),
    "cards by a measured curve": Conditions(idle=CURVED),
    "boot 15 minutes": Conditions(wake_minutes=15),
    "asleep 40 and 200 W": Conditions(asleep=Asleep(40.0, 200.0)),
    "extender's weight 10": Conditions(weight=10),
    "1 wake in 100 fails": Conditions(lost_wakes=0.01),
    "cards are reported": Conditions(cards_are_known=True),
}


def baseline_of(conditions: str) -> str:
    """The conditions under which the baseline runs: without sleep only idle power matters."""
    return conditions if CONDITIONS[conditions].idle is not MEASURED else USUAL
