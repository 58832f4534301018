"""The answer to `joulie try` over a log in sentences and a table. The calibration comes first."""

from collections.abc import Iterator, Sequence

from joulie_answers.text.tables import TextTable, TextWithTables
from joulie_bus.core.times import rfc3339
from joulie_bus.errors import one_line
from joulie_simulator.energy.logged_fleet import ASLEEP
from joulie_simulator.trial.calibration import MOST_ERROR
from joulie_simulator.trial.past import EQUAL_WORK, Past, Saved, Tried, saved_by, work_share

NUMBERS = (*("kWh", "saved", "awake node-hours", "wait p50", "p99", "longest", "unplaced"),)


def as_text(found: Past) -> TextWithTables:
    return TextWithTables.of(
        [
            *calibration(found),
            "",
            f"{_time(found.from_ms)} to {_time(found.to_ms)}: {_count(found.unknown.pods, 'pod')} "
            f"on {_count(found.unknown.nodes, 'node')}, placed again under each setting.",
            table(found),
            *_notes(found),
            "",
            "What the log does not say:",
            *(f"- {each}" for each in not_known(found)),
            "",
            "What this assumes:",
            *(f"- {each}" for each in assumed(found)),
        ]
    )


# --- the calibration ----------------------------------------------------------------------------


def calibration(found: Past) -> Iterator[str]:
    """The first line is the past itself."""
    known, nodes = found.calibration, found.unknown.nodes
    metered = nodes - found.unknown.nodes_without_readings
    part = " in the later half" if known.is_apart else ""
    yield (
        f"Calibration: run again as it ran, the nodes with readings take "
        f"{_kwh(known.judged.replayed_kwh)} kWh{part}; their meters say "
        f"{_kwh(known.judged.metered_kwh)} kWh ({_error(known.judged.error)}). Readings cover "
        f"{_percent(known.hours.read_share)} of the hours of {metered} of {_count(nodes, 'node')}."
    )
    if not known.is_good:
        yield (
            f"Do not trust the figures below: the error is above {_percent(MOST_ERROR)}. What may "
            f"cause it: {'; '.join(_causes(found))}."
        )
    yield from _more_calibration(found)


def _more_calibration(found: Past) -> Iterator[str]:
    known = found.calibration
    if known.is_apart and known.by_interval is not None:
        yield (
            "What pods use was fitted to the earlier half. The mean error of an interval is "
            f"{_percent(known.by_interval, 1)}."
        )
    else:
        yield (
            "What pods use was fitted to the same readings: the period is too short to judge it on "
            "others."
        )
    if found.happened.awake_node_hours is not None:
        yield f"Beside what happened: {'; '.join(_beside(found))}."
    if not found.sleeps:
        yield (
            "No node slept in this period: what a sleeping node draws and how long it takes to "
            "wake up are not calibrated."
        )


def _beside(found: Past) -> Iterator[str]:
    row, then = found.as_it_ran, found.happened
    for name, mine, its, form in (
        ("awake node-hours", row.middle("awake_node_hours"), then.awake_node_hours, _hours),
        ("wait p50", row.middle("wait_p50_s"), then.wait_p50_s, _wait),
        ("wait p99", row.middle("wait_p99_s"), then.wait_p99_s, _wait),
    ):
        yield f"{name} {form(mine)}, in the log {'unknown' if its is None else form(its)}"


def _causes(found: Past) -> Iterator[str]:
    """What is known to be unknown; the rest is the physics."""
    unknown, read = found.unknown, found.calibration.hours.read_share
    for number, what in (
        (unknown.nodes_of_guessed_idle_power, "nodes whose idle power is a guess"),
        (unknown.nodes_of_unrated_cpu, "nodes of unknown rated power"),
        (unknown.pods_on_unknown_nodes, "pods on nodes that are gone or of unknown size"),
        (unknown.pods_of_daemonsets, "pods of DaemonSets"),
        (unknown.pods_never_bound, "pods that were never bound"),
        (unknown.pods_running_on, "pods that did not end in the period"),
        (unknown.changes_of_settings, "changes of settings in the period"),
    ):
        if number:
            yield f"{what} ({number})"
    if read < 1 - MOST_ERROR:
        yield f"time without readings ({_percent(1 - read)})"
    if unknown.modelled_share:
        yield f"readings that a model computed ({_percent(unknown.modelled_share)} of the energy)"
    yield "power that does not follow what pods request"


# --- the table ----------------------------------------------------------------------------------


def table(found: Past) -> TextTable:
    rows = [(one_line(row.name), *_cells(row, found)) for row in found.rows]
    return TextTable(("", *NUMBERS), rows, {*NUMBERS}, indent=2)


def _cells(row: Tried, found: Past) -> Sequence[str]:
    saved = None if row is found.as_it_ran else saved_by(row, found.as_it_ran)
    return (
        _kwh(row.middle("kwh")),
        "-" if saved is None else _share(saved),
        _hours(row.middle("awake_node_hours")),
        *(_wait(row.middle(name)) for name in ("wait_p50_s", "wait_p99_s", "wait_max_s")),
        f"{row.middle('unplaced'):.0f}",
    )


def _share(saved: Saved) -> str:
    if saved.low == saved.high:
        return _percent(saved.mid, 1)
    low, mid, high = (_percent(each, 1) for each in saved)
    return f"{mid} ({low} to {high})"


def _notes(found: Past) -> Iterator[str]:
    for row in found.rows:
        share = work_share(row, found.as_it_ran)
        if abs(share - 1) > EQUAL_WORK:
            yield (
                f"{one_line(row.name)} did {_percent(share, 1)} of the work of "
                f"{found.as_it_ran.name} in this period: its kWh are not for the same work."
            )
    orders = len(found.as_it_ran.runs)
    if orders > 1:
        yield f"Figures are the middle of {orders} orders of equal nodes, and savings the range."


# --- what is not said ---------------------------------------------------------------------------


def not_known(found: Past) -> Iterator[str]:
    unknown = found.unknown
    for number, one, what in (
        (unknown.nodes_without_readings, "node", "without readings: rated power counts"),
        (unknown.nodes_of_unrated_cpu, "node", "of unknown rated power: by the number of cores"),
        (unknown.nodes_of_unknown_size, "node", "of unknown size: left out"),
        (unknown.pods_running_on, "pod", "ran on at the end of the period: cut off there"),
        (unknown.pods_never_bound, "pod", "never bound: left out"),
        (unknown.pods_of_daemonsets, "pod", "of DaemonSets: left out"),
        (unknown.pods_on_unknown_nodes, "pod", "on nodes that are gone: left out"),
    ):
        if number:
            yield f"{_count(number, one)} {what}."
    if unknown.changes_of_settings:
        yield (
            f"{_count(unknown.changes_of_settings, 'change')} of the settings in the period: the "
            "newest count for all of it."
        )
    yield (
        "Labels, taints, affinity and volumes of pods: they are placed by cores, cards and memory."
    )


def assumed(found: Past) -> Iterator[str]:
    yield (
        "Pods arrive, request and run as in the log. Where they were before the period and which "
        "nodes slept then does not count: all nodes begin awake, and pods that ran come first."
    )
    yield (
        f"An idle node draws its lowest reading and a sleeping one {_percent(ASLEEP)} of it. Pods "
        f"add {_percent(found.use.cpu)} of the rated power of the cores that they request, and "
        f"{_percent(found.use.cards)} of that of the cards."
    )
    yield f"A node takes {_wait(found.wake_s)} to wake up ({_of_boots(found.unknown.boots)})."
    yield "No node is capped, fails or is held to a power target, and no pod is evicted."
    if found.plans:
        yield (
            "A row of a preset keeps POLICY_NUMBERS, NODE_SELECTOR and RECONCILE_INTERVAL of the "
            "log."
        )
    else:
        yield "The log has no plans: as it ran is kube-scheduler's default, and no node sleeps."


def _of_boots(boots: int) -> str:
    return f"the middle of {boots} in the log" if boots else "assumed"


# --- forms --------------------------------------------------------------------------------------


def _time(ms: int) -> str:
    return rfc3339(ms, "seconds")


def _kwh(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def _error(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:+.1f} %"


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _hours(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def _wait(seconds: float) -> str:
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
