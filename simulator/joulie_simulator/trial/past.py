"""A period of a log in closed loop under other settings: what each would have used, and how long
pods would have waited."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from joulie_simulator.energy.closed_loop import (
    USUAL_TIMING,
    Logged,
    Setting,
    Timing,
    Use,
    placed_by_default,
    placed_by_product,
)
from joulie_simulator.energy.node_meter import NodeMeter
from joulie_simulator.energy.product import Product
from joulie_simulator.energy.queueing import Outcome
from joulie_simulator.trial.calibration import Calibration

AS_IT_RAN = "as it ran"
DEFAULT = "kube-scheduler"
EQUAL_WORK = 0.01  # a share by which the work of two rows may differ


class PastRun(NamedTuple):
    """Of one order of equal nodes."""

    kwh: float
    work_kwh: float  # the ideal dynamic energy of the work that was done
    awake_node_hours: float
    wait_p50_s: float
    wait_p99_s: float
    wait_max_s: float
    placed: int
    unplaced: int  # pods that found no node until the end
    wakes: int


class Tried(NamedTuple):
    """One row: a setting, and its runs by the seeds of their orders."""

    name: str
    changed: Mapping[str, str]  # settings, beside those of the log
    runs: Sequence[PastRun]

    def middle(self, figure: str) -> float:
        return float(median(getattr(run, figure) for run in self.runs))


class Saved(NamedTuple):
    """The share of the energy that a row takes less than the row as it ran, seed by seed."""

    low: float
    mid: float
    high: float


def saved_by(row: Tried, as_it_ran: Tried) -> Saved | None:
    """None where the row as it ran uses nothing."""
    pairs = zip(as_it_ran.runs, row.runs, strict=True)
    shares = [1 - after.kwh / before.kwh for before, after in pairs if before.kwh]
    return Saved(min(shares), median(shares), max(shares)) if shares else None


def work_share(row: Tried, as_it_ran: Tried) -> float:
    """Of the work of the row as it ran."""
    whole = as_it_ran.middle("work_kwh")
    return row.middle("work_kwh") / whole if whole else 1.0


class Happened(NamedTuple):
    """What the log says beside its meters; None: it does not."""

    awake_node_hours: float | None
    wait_p50_s: float | None
    wait_p99_s: float | None


class Unknown(NamedTuple):
    """What the log does not say, counted."""

    nodes: int  # that are compared
    nodes_without_readings: int
    nodes_of_unknown_size: int  # left out
    nodes_of_unrated_cpu: int
    nodes_of_guessed_idle_power: int
    pods: int  # that are compared
    pods_running_on: int  # at the end of the period: how long is not known
    pods_never_bound: int  # left out
    pods_of_daemonsets: int  # left out
    pods_on_unknown_nodes: int  # left out
    changes_of_settings: int  # in the period; the newest settings count
    boots: int  # that the log has; 0: the time that a node takes to wake up is assumed
    modelled_share: float | None  # of the metered energy


class Past(NamedTuple):
    from_ms: int
    to_ms: int
    position: int
    plans: bool  # whether the log has plans
    sleeps: bool  # whether a node was asleep in the period
    wake_s: float
    use: Use  # as fitted
    calibration: Calibration
    happened: Happened
    unknown: Unknown
    rows: Sequence[Tried]  # the first one is as it ran

    @property
    def as_it_ran(self) -> Tried:
        return self.rows[0]


class Task(NamedTuple):
    """A run, for a process of its own. Without a product it is kube-scheduler's default."""

    logged: Logged
    product: Product | None
    seed: int
    timing: Timing = USUAL_TIMING


def run_of(task: Task) -> tuple[PastRun, NodeMeter]:
    setting = Setting.of(task.logged, task.seed)
    meter = setting.node_meter()
    if task.product is None:
        outcome = placed_by_default(setting, meter)
    else:
        outcome = placed_by_product(setting, task.product, task.timing, meter)
    return _in_real_time(outcome, setting.speed, meter), meter


def _in_real_time(outcome: Outcome, speed: float, meter: NodeMeter) -> PastRun:
    return PastRun(
        outcome.kwh / speed,
        outcome.work_kwh / speed,
        meter.awake_node_hours,
        outcome.wait_p50_s / speed,
        outcome.wait_p99_s / speed,
        outcome.wait_max_s / speed,
        outcome.admitted,
        outcome.waiting,
        outcome.switched.wakes,
    )
