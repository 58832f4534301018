"""The last lines of a demo: what was decided, what was saved, and how to check it."""

import time
from pathlib import Path
from typing import Any

from joulie_answers.readers.saved import METERS, saved_of
from joulie_answers.schema.responses import SavedPeriod
from joulie_bus.core.times import MS
from joulie_bus.errors import JoulieError
from joulie_projections.store.energy_table import EnergyTable

NO_ENERGY = "the ledger holds no energy yet"


def saved_in(database: Path | str) -> dict[str, Any]:
    """By the function of the console and of its tiles: the newest report of each day."""
    try:
        with EnergyTable.readable(database) as opened, opened.at_one_moment() as table:
            found = saved_of(table, table.between(0, time.time_ns() // MS, METERS))
    except JoulieError as error:
        return {"kwh": None, "of_kwh": None, "why": str(error)}
    if found is None:
        return {"kwh": None, "of_kwh": None, "why": NO_ENERGY}
    return _as_json(found)


def _as_json(found: SavedPeriod) -> dict[str, Any]:
    kwh = found.saved_kwh.mid if found.saved_kwh else None
    return {"kwh": kwh, "of_kwh": found.meter_kwh, "why": found.why}


def text(summary: dict[str, Any], speed: float, joulie: str, where: str, place: Path) -> str:
    return (
        f"{summary['decisions']} decisions for {summary['pods']} pods{_nodes(summary['nodes'])}; "
        f"{summary['refused']} of them refused some node.\n"
        f"{_work(summary['simulated'], speed)}"
        f"{_saved(summary['saved'], joulie, where)}\n"
        f"The data is in {place}. To check it:\n"
        f"  {joulie} verify{where}\n  {joulie} replay{where}"
    )


def _nodes(count: int | None) -> str:
    """Nothing where the demo ended before it had the state of the projector."""
    return "" if count is None else f" on {count} nodes"


def _saved(found: dict[str, Any], joulie: str, where: str) -> str:
    if found["kwh"] is None:
        why = found["why"] or "it was not compared"
        return f"What was saved is not known: {why}. `{joulie} report{where}` computes it."
    less = "more used" if found["kwh"] < 0 else "saved"
    return (
        f"{abs(found['kwh']):.3f} kWh {less}, beside {found['of_kwh']:.3f} kWh metered: compared "
        f"with the same pods under kube-scheduler's default score. `{joulie} report{where}` shows "
        "how."
    )


def _work(simulated: dict[str, Any] | None, speed: float) -> str:
    if simulated is None:
        return ""
    unanswered = (
        f"{simulated['unanswered']} of {simulated['bound']} pods were bound without an answer of "
        "the extender in time.\n"
        if simulated["unanswered"]
        else ""
    )
    return (
        f"{unanswered}In {simulated['simulated_s'] / 3600:.2f} simulated hours the pods did "
        f"{simulated['core_hours']:,.1f} core-hours and {simulated['card_hours']:,.1f} card-hours "
        f"of work, and waited {simulated['wait_p99_s']:,.0f} s at most (p99). Simulated hours run "
        f"{speed:g} times as fast as real ones, in which the meters and `joulie energy` count.\n"
    )
