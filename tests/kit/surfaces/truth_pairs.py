"""Each figure on every surface that states it, while no fact arrives: they are the same.

Asked while the source of facts stands still, so that all surfaces speak of the same position.
"""

import asyncio
import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from joulie_answers.here import status_of
from joulie_answers.text.status import status_text
from joulie_demo import joulie
from truth import Judge
from truth_witness import STALENESS_S

STILL_S = 1.0  # of a position that stays
PATIENCE_S = 300.0  # beside busy programs one question takes some of these
Table = Mapping[str, Mapping[str, object]]  # by figure and surface
Row = dict[str, object]


async def table(judge: Judge, data: Path) -> Table:
    await _until_still(judge)
    page, nodes, shown = await _each(judge, "cluster", "nodes?limit=1", "map")
    running, cards = await _each(judge, "pods?phase=running&limit=1", "gpus")
    reach, log, energy = await _each(judge, "reach", "decisions?limit=1", "energy")
    remote, saved = await _each(judge, "status", "saved")
    metrics = await judge.scrape_all()
    status = await asyncio.to_thread(status_of, judge.data, time.time_ns(), STALENESS_S)
    text = status_text(status)
    commands = {
        name: await asyncio.to_thread(_run, data, name) for name in ("energy", "gpus", "report")
    }
    ledger = metrics["ledger"]
    return {
        **_of_nodes(page, nodes, shown, status, text, ledger),
        **_of_cards(page, cards, commands["gpus"], metrics),
        **_of_log(page, reach, log, status, text),
        **_of_status(status, remote),
        **_of_saving(energy, commands["energy"][0], saved),
        **_of_energy(energy, commands["energy"], commands["report"]),
        "pods running": {"page": page["pods_running"], "list": running["total"]},
        "watts": _of_power(page, ledger),
        "in spools": _of_spools(page, status, remote, metrics),
    }


def differing(found: Table) -> list[str]:
    """The pairs of surfaces that state different figures."""
    return [
        f"{figure}: {first} {row[first]}, and {second} {row[second]}"
        for figure, row in found.items()
        for place, first in enumerate(row)
        for second in [*row][place + 1 :]
        if row[first] != row[second]
    ]


def as_text(found: Table) -> str:
    return "\n".join(
        f"{figure:<16} " + ", ".join(f"{surface} {value}" for surface, value in row.items())
        for figure, row in found.items()
    )


async def _until_still(judge: Judge) -> None:
    """Until the ledger has folded a position that no longer changes, and the log is written."""
    deadline = time.monotonic() + PATIENCE_S
    before, after = await _reached(judge), dict[str, int]()
    while before != after or after["position"] != after["folded_to"]:
        assert time.monotonic() < deadline, f"facts still arrive, or are not folded: {after}"
        await asyncio.sleep(STILL_S)
        before, after = after, await _reached(judge)


async def _reached(judge: Judge) -> dict[str, int]:
    energy, reach = await _each(judge, "energy", "reach")
    names = ("position", "folded_to")
    return {**{name: energy[name] for name in names}, "entries": reach["entries"]}


async def _each(judge: Judge, *paths: str) -> Sequence[Any]:
    return [await judge.get(f"/v1/{path}") for path in paths]


def _run(data: Path, name: str) -> tuple[Any, str]:
    text, answer = (joulie(name, *words, "--data", data) for words in ([], ["-o", "json"]))
    assert (text.returncode, answer.returncode) == (0, 0), text.stderr + answer.stderr
    return json.loads(answer.stdout), text.stdout


def _of_nodes(
    page: Any, nodes: Any, shown: Any, status: Any, text: str, ledger: Mapping[str, float]
) -> Table:
    states = {name: value for name, value in ledger.items() if name.startswith("joulie_nodes{")}
    asleep = 'joulie_nodes{state="asleep"}'
    printed = re.search(r"readings +(\d+) of (\d+) nodes", text)
    assert printed
    return {
        "nodes": {
            "page": page["nodes"],
            "list": nodes["total"],
            "map": len(shown["name"]),
            "status": status.readings.nodes,
            "status text": int(printed[2]),
            "metrics": int(sum(states.values())),
        },
        "nodes read": {
            "page": page["nodes"] - page["unmeasured"],
            "map": sum(watts >= 0 for watts in shown["watts"]),
            "status": status.readings.fresh,
            "status text": int(printed[1]),
        },
        "asleep": {
            "page": page["asleep"],
            "map": shown["power"].count(1),
            "status": status.readings.asleep,
            "metrics": int(states[asleep]),
        },
    }


def _of_cards(
    page: Any, cards: Any, command: tuple[Any, str], metrics: Mapping[str, Mapping[str, float]]
) -> Table:
    answer, text = command
    printed = re.search(r"^(\d+) card\(s\) on \d+ node\(s\): .*?(\d+) unhealthy", text, re.M)
    assert printed
    free = re.compile(r'joulie_free_gpus\{model="(.*)",of="all"\}')
    counted = {
        found[1]: value
        for name, value in metrics["extender"].items()
        if (found := free.match(name))
    }
    return {
        "cards": {
            "page": page["cards"],
            "list": cards["sums"]["cards"],
            "command": answer["sums"]["cards"],
            "text": int(printed[1]),
            "metrics": int(metrics["ledger"]['joulie_gpus{of="nodes"}']),
        },
        "unhealthy": {
            "page": page["cards_unhealthy"],
            "list": cards["sums"]["unhealthy"],
            "text": int(printed[2]),
        },
        "free memory": {"list": cards["sums"]["free_mb"], "command": answer["sums"]["free_mb"]},
        "free GPUs": {
            "list": {name: each["free"] for name, each in cards["free_gpus"].items()},
            "command": {name: each["free"] for name, each in answer["free_gpus"].items()},
            "metrics": counted,
        },
    }


def _of_log(page: Any, reach: Any, log: Any, status: Any, text: str) -> Table:
    printed = re.search(r"decisions +\d+ \((\d+) entries", text)
    place = re.search(r"^position +(\d+)", text, re.M)
    assert printed
    assert place
    return {
        "entries": {
            "page": page["entries"],
            "reach": reach["entries"],
            "list": log["entries"],
            "status": status.entries,
            "status text": int(printed[1]),
        },
        "position": {
            "page": page["position"],
            "reach": reach["last"],
            "status": status.position,
            "status text": int(place[1]),
        },
    }


def _of_status(status: Any, remote: Any) -> Table:
    """The status of this machine, and that of the console."""
    here: Row = {
        "position": status.position,
        "decisions": status.decisions,
        "entries": status.entries,
        "epoch": status.epoch,
        "quarantined": status.quarantined,
        "nodes": status.readings.nodes,
        "nodes read": status.readings.fresh,
    }
    there = {
        **remote,
        "nodes": remote["readings"]["nodes"],
        "nodes read": remote["readings"]["fresh"],
    }
    return {
        f"status, {name}": {"here": value, "console": there[name]} for name, value in here.items()
    }


def _of_saving(energy: Any, command: Any, saved: Any) -> Table:
    """Of the whole log, and of the day that it is of; null until the first report."""
    day, whole = saved["today"], energy["saved_in_period"]
    if whole["from_ms"] < day["from_ms"]:  # it began before midnight
        return {}
    return {
        "saved, by ledger": {
            "tile": _mid(day),
            "page": _mid(whole),
            "command": _mid(command["saved_in_period"]),
        }
    }


def _mid(period: Any) -> str:
    found = period["saved_kwh"]
    return period["why"] if found is None else f"{found['mid']:.6f}"


def _of_energy(page: Any, command: tuple[Any, str], report: tuple[Any, str]) -> Table:
    answer, text = command
    document, sentence = report
    printed = re.search(r"meters +([\d.]+) kWh", text)
    said = re.match(r"The meters measured ([\d.]+) kWh", sentence)
    assert printed
    assert said
    rows: dict[str, Row] = {
        "energy": {
            "page": f"{page['meter_kwh']:.3f}",
            "command": f"{answer['meter_kwh']:.3f}",
            "text": printed[1],
            "report": f"{document['energy']['node']['meter_kwh']:.3f}",
            "report text": said[1],
        },
        "complete to": {
            "page": page["complete_to_ms"],
            "command": answer["complete_to_ms"],
            "report": document["complete_to"],
        },
    }
    saved = (document["saved"] or {}).get("kwh")
    if saved and (named := re.search(r"that is ([\d.]+) kWh (saved|more)", sentence)):
        rows["saved"] = {"report": f"{abs(saved['mid']):.3f}", "report text": named[1]}
    return rows


def _of_spools(
    page: Any, status: Any, remote: Any, metrics: Mapping[str, Mapping[str, float]]
) -> Row:
    return {
        "page": page["spooled"],
        "status": sum(each.waiting for each in status.spools),
        "status of the console": sum(each["waiting"] for each in remote["spools"]),
        "metrics": int(metrics["extender"]["joulie_decision_spool_events"]),
    }


def _of_power(page: Any, ledger: Mapping[str, float]) -> Row:
    """The metric counts readings of the last minute, and the page those of some minutes: of the
    same nodes, the sums are the same."""
    row: Row = {"page": _watts(page["measured_w"])}
    if ledger["joulie_nodes_unread"] == page["unmeasured"]:
        row["metrics"] = _watts(ledger.get("joulie_power_watts"))
    return row


def _watts(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
