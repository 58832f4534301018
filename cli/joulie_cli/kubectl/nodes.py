"""`kubectl joulie status`: an overview of the cluster from its NodeTwins."""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from joulie_answers.text.tables import TextTable, TextWithTables
from joulie_bus.runtime.tasks import background
from joulie_cli.display.output import print_text
from joulie_operator.kube.api_client import ApiServer
from joulie_operator.kube.object_cache import ObjectCache
from joulie_operator.observe.resource_watcher import Watcher
from joulie_operator.resources.custom_resources import (
    NODETWINS,
    Condition,
    GpuPowerCap,
    NodeTwin,
    PowerMeasurement,
    read_twin,
)

# By the conditions of a NodeTwin that hold for a node which takes no pods.
TAKES_NO_PODS = {
    ("Awake", "Asleep"): "asleep",
    ("Awake", "WakingUp"): "waking",
    ("Schedulable", "NotReady"): "not ready",
    ("Schedulable", "Cordoned"): "cordoned",
}
CLASSES = ("performance", "eco", "draining", "unknown")
FRAME_S = 1.0
MEASURED = "kepler"  # the source of measured watts; all other sources are estimates of a model
CLEAR = "\x1b[2J\x1b[H"


class Row(NamedTuple):
    """One node, with fields in the order of the columns; None is shown as a dash."""

    node: str
    profile: str | None
    state: str
    power: str | None
    headroom: float | None
    cooling: float | None
    cpu_cap: float | None
    gpu_cap: float | None
    watts: float | None
    perf_pods: int | None
    cpu_cap_w: float | None
    gpu_cap_w: float | None
    psu: float | None
    pue: float | None
    capped: float | None
    tdp: float | None
    source: str | None
    measured_at: str | None
    updated: str | None


COLUMNS = {
    "node": "NODE",
    "profile": "PROFILE",
    "state": "CLASS",
    "power": "STATE",
    "headroom": "HEADROOM",
    "cooling": "COOLING",
    "cpu_cap": "CPU-CAP",
    "gpu_cap": "GPU-CAP",
    "watts": "WATTS",
    "perf_pods": "PERF-PODS",
}
WIDE = {
    "cpu_cap_w": "CPU-CAP-W",
    "gpu_cap_w": "GPU-CAP-W",
    "psu": "PSU",
    "pue": "PUE",
    "capped": "CAPPED",
    "tdp": "TDP",
    "source": "SOURCE",
    "measured_at": "MEASURED",
    "updated": "UPDATED",
}
SORTS = {title.lower(): field for field, title in (COLUMNS | WIDE).items()}
LARGEST_FIRST = {"headroom", "cooling", "watts", "perf_pods", "psu", "pue", "capped", "tdp"}


async def status(api: ApiServer, args: argparse.Namespace) -> None:
    if args.watch:
        await _follow(api, args)
        return
    pages = [page async for page in api.pages(NODETWINS)]
    print_text(_rendered([read_twin(item) for page in pages for item in page.items], args))


async def _follow(api: ApiServer, args: argparse.Namespace) -> None:
    """Print a frame on every change, at most one per second."""
    twins = ObjectCache[NodeTwin](lambda twin: twin.metadata)
    async with background(Watcher(api, NODETWINS, read_twin, twins).run(), "watch"):
        await twins.complete.wait()
        while True:
            twins.changed.clear()
            found = [twin for name in twins.names() if (twin := twins.get(name)) is not None]
            if sys.stdout.isatty():
                print(CLEAR, end="")
            print_text(_rendered(found, args))
            await asyncio.gather(twins.changed.wait(), asyncio.sleep(FRAME_S))


def _rendered(twins: Sequence[NodeTwin], args: argparse.Namespace) -> str:
    rows = in_order([row_of(twin) for twin in twins], SORTS[args.sort_by])
    if args.output == "json":
        told = {"summary": summary(rows), "nodes": [row._asdict() for row in rows]}
        return json.dumps(told)
    columns = COLUMNS | (WIDE if args.output == "wide" else {})
    return TextWithTables.of([headline(rows), "", table(rows, columns)])


# --- output -------------------------------------------------------------------------------------


def row_of(twin: NodeTwin) -> Row:
    spec, status = twin.spec, twin.status
    power = (status.power_measurement if status else None) or PowerMeasurement()
    gpu = (spec.gpu.power_cap if spec and spec.gpu else None) or GpuPowerCap()
    return Row(
        node=twin.metadata.name,
        profile=spec.profile if spec else None,
        state=(status.schedulable_class if status else None) or "unknown",
        power=power_of(status.conditions if status else None),
        headroom=status.predicted_power_headroom_score if status else None,
        cooling=status.predicted_cooling_stress_score if status else None,
        cpu_cap=spec.cpu.package_power_cap_pct_of_max if spec and spec.cpu else None,
        gpu_cap=gpu.cap_pct_of_max,
        watts=power.measured_node_power_w,
        perf_pods=status.performance_pods if status else None,
        cpu_cap_w=spec.cpu.package_power_cap_watts if spec and spec.cpu else None,
        gpu_cap_w=gpu.cap_watts_per_gpu,
        psu=status.predicted_psu_stress_score if status else None,
        pue=status.estimated_pue if status else None,
        capped=power.node_capped_power_w,
        tdp=power.node_tdp_w,
        source=power.source,
        measured_at=power.measured_at or None,
        updated=status.last_updated if status else None,
    )


def power_of(conditions: Sequence[Condition] | None) -> str | None:
    """None until the operator has written the conditions."""
    if conditions is None:
        return None
    found = {(each.type, each.reason) for each in conditions if each.status == "False"}
    return next((text for which, text in TAKES_NO_PODS.items() if which in found), "awake")


def in_order(rows: Sequence[Row], by: str) -> list[Row]:
    """Sort rows; unknown values come last in either direction."""
    named = sorted(rows, key=lambda row: row.node)
    known = [row for row in named if getattr(row, by) is not None]
    known.sort(key=lambda row: getattr(row, by), reverse=by in LARGEST_FIRST)
    return known + [row for row in named if getattr(row, by) is None]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    counts, states = Counter(row.state for row in rows), Counter(row.power for row in rows)
    headrooms = [row.headroom for row in rows if row.headroom is not None]
    return {
        "nodes": len(rows),
        "classes": {state: counts[state] for state in CLASSES},
        "states": {state: states[state] for state in ("awake", *TAKES_NO_PODS.values())},
        "headroomMean": round(sum(headrooms) / len(headrooms), 1) if headrooms else None,
        "coolingMax": max((row.cooling for row in rows if row.cooling is not None), default=None),
        "measuredW": _sum(row.watts for row in rows if row.source == MEASURED),
        "measuredNodes": sum(row.source == MEASURED for row in rows),
        "drawnW": _sum(row.watts for row in rows),
        "psuMax": max((row.psu for row in rows if row.psu is not None), default=None),
        "cappedW": _sum(row.capped for row in rows),
        "tdpW": _sum(row.tdp for row in rows),
        "performancePods": _sum(row.perf_pods for row in rows),
    }


def _sum(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None if none is."""
    known = [value for value in values if value is not None]
    return round(sum(known), 1) if known else None


def _kilowatts(watts: float | None) -> str:
    return "-" if watts is None else f"{watts / 1000:.1f} kW"


def headline(rows: Sequence[Row]) -> str:
    told = summary(rows)
    classes = "  ".join(f"{state} {told['classes'][state]}" for state in CLASSES)
    states = ", ".join(f"{count} {state}" for state, count in told["states"].items() if count)
    measured = f"{_kilowatts(told['measuredW'])} on {told['measuredNodes']} nodes"
    budget = f"{_kilowatts(told['cappedW'])} of {_kilowatts(told['tdpW'])}"
    headroom, cooling = _cell(told["headroomMean"]), _cell(told["coolingMax"])
    return "\n".join(
        [
            f"Nodes     {told['nodes']}: {classes}{f'; {states}' if states else ''}",
            f"Power     {measured} measured; caps allow {budget}",
            f"Headroom  {headroom} on average; cooling stress at most {cooling}",
            f"Demand    {_cell(told['performancePods'])} performance pods running",
        ]
    )


def table(rows: Sequence[Row], columns: dict[str, str]) -> TextTable:
    cells = [[_cell(getattr(row, field)) for field in columns] for row in rows]
    return TextTable([*columns.values()], cells)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
