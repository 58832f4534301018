"""`joulie status`: running parts, their positions and lag, and the age of the data."""

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from joulie_answers.text.times import rfc3339
from joulie_bus.runtime.metrics import VIEW_NEVER_S
from joulie_bus.runtime.presets import HEADROOM
from joulie_bus.streams.incomplete import described
from joulie_bus.streams.records import IncompleteCopy
from joulie_bus.streams.subjects import Stream
from joulie_cli.ask.elsewhere import elsewhere_in, lines_of, warnings_of
from joulie_cli.display.output import show
from joulie_cli.log_access.past import history_in
from joulie_cli.supervisor.data_directory import DataDirectory, Running, is_alive
from joulie_cli.supervisor.gauges import Gauges, gauges_of
from joulie_cli.wiring import Wiring
from joulie_extender.settings import ScoringSettings
from joulie_operator.planning.resting import refusable_pods, resting_pods
from joulie_projections.energy.report import BEHIND_S as LEDGER_BEHIND_S
from joulie_projections.history.history import History
from joulie_projections.state import rows
from joulie_projections.state.state import ClusterState
from joulie_projections.store.energy_table import behind_s

SETTINGS = (ScoringSettings,)
MOST_READ = 2000  # pending pods whose answers are read
MOST_NAMED = 10  # resting pods in the text; all are in the JSON
SILENT_S = 5.0  # a view gets four heartbeats a second; a longer silence is a fault
BEHIND_S = 2.0  # a projector that keeps up is behind by less
BROKER_SILENT_S = 3.0  # the projector asks the broker four times a second
NS = 10**9


class StalenessLimits(NamedTuple):
    """The current time, and the age from which a reading counts as stale."""

    now: int
    reading_s: float


def run(args: argparse.Namespace, wires: Wiring) -> int:
    limits = StalenessLimits(time.time_ns(), wires.source.load(ScoringSettings).staleness_s)
    found = status_of(wires.data, limits)
    show(args, found, as_text(found))
    return 0 if found["running"] else 1


def status_of(data: DataDirectory, limits: StalenessLimits) -> dict[str, Any]:
    running = data.running()
    gauges = gauges_of(running.metrics) if running else {}
    with history_in(data) as history:
        # The first query: its answer is as old as what it reads.
        ledger_s = behind_s(history.connection)
        parts = _parts(running, gauges)
        positions = _positions(history, limits.now) | {"readings": _readings(history, limits)}
        rests = gauges.get("operator", {}).get("joulie_pods_resting", 0)
        resting = _resting(history, limits.now) if rests else []
        elsewhere = {} if running else elsewhere_in(history)
    is_running = running is not None or bool(elsewhere)
    return {
        "running": is_running,
        "up_s": (limits.now - running.since) / NS if running else None,
        "parts": parts,
        "elsewhere": elsewhere,
        **positions,
        "ledger_behind_s": ledger_s,
        "resting": resting,
        "room": _room(gauges.get("projector", {})),
        "data": str(data.path),
        "endpoints": {"broker": running.nats_url, **running.endpoints} if running else {},
        "stale": [
            *_part_warnings(parts, data.logs),
            *warnings_of(elsewhere),
            *_age_warnings(positions, is_running),
            *(_ledger_warnings(ledger_s) if is_running else []),
        ],
    }


def _parts(running: Running | None, gauges: Mapping[str, Gauges]) -> list[dict[str, Any]]:
    if running is None:
        return []
    return [
        {
            "name": name,
            "pid": pid,
            "alive": is_alive(pid),
            "restarts": running.restarts.get(name, 0),
            **_figures(name, gauges.get(name)),
        }
        for name, pid in running.parts.items()
    ]


def _figures(name: str, gauges: Gauges | None) -> dict[str, Any]:
    """Position and ages of a part from its metrics; the projector has a lag instead."""
    if gauges is None:
        return {"position": None}
    position = int(gauges.get("joulie_position", 0))
    if name == "projector":
        waiting, behind = gauges.get("joulie_lag_events", 0), gauges.get("joulie_lag_seconds", 0)
        silent = gauges.get("joulie_broker_silent_seconds", 0)
        lag = {"lag_events": int(waiting), "lag_s": behind, "broker_silent_s": silent}
        return {"position": position, **lag, "incomplete": _incomplete(gauges)}
    return {
        "position": position,
        "view_age_s": gauges.get("joulie_view_age_seconds"),
        "view_behind_s": gauges.get("joulie_view_behind_seconds"),
    }


def _incomplete(gauges: Gauges) -> list[IncompleteCopy]:
    name, found = "joulie_broker_missing_messages{", []
    for key in gauges:
        if key.startswith(name):
            server, stream = key.removeprefix(name).removesuffix("}").rsplit(" ", 1)
            found.append(IncompleteCopy(server, Stream(stream), int(gauges[key])))
    return found


def _room(gauges: Gauges) -> dict[str, Any]:
    """Sizes that the projector measured; empty while none runs."""
    held = {stream: gauges.get(f"joulie_stream_bytes{{{stream}}}") for stream in Stream}
    return {
        "streams": {
            str(stream): {
                "bytes": int(size),
                "max_bytes": _whole(gauges.get(f"joulie_stream_max_bytes{{{stream}}}")),
                "days_left": gauges.get(f"joulie_stream_days_left{{{stream}}}"),
                "kept_s": gauges.get(f"joulie_stream_kept_seconds{{{stream}}}", 0.0),
            }
            for stream, size in held.items()
            if size is not None
        },
        "database_bytes": _whole(gauges.get("joulie_database_bytes")),
        "free_bytes": _whole(gauges.get("joulie_data_free_bytes")),
    }


def _whole(value: float | None) -> int | None:
    return int(value) if value else None


def _positions(history: History, now: int) -> dict[str, Any]:
    checkpoint, counts = history.checkpoint(), history.counts()
    committed = counts.committed_at
    return {
        "position": checkpoint.position if checkpoint else 0,
        "epoch": checkpoint.epoch if checkpoint else 0,
        "committed_at": rfc3339(committed // 1_000_000) if committed else None,
        "commit_age_s": max(0, now - committed) / NS if committed else None,
        "preset": _preset(history),
        "decisions": counts.answers,
        "entries": counts.entries,
        "signed_to": counts.signed_to,
        "quarantined": counts.quarantined,
    }


def _preset(history: History) -> str | None:
    """That of the newest plan; None before the first one."""
    cluster_state = ClusterState()
    rows.apply_rows(cluster_state, history.states("cluster"))
    plan = cluster_state.plan
    return str(plan.settings.get("preset", HEADROOM)) if plan else None


def _readings(history: History, limits: StalenessLimits) -> dict[str, Any]:
    """Counts the nodes of the cluster, and those with a fresh reading."""
    cluster_state = ClusterState()
    rows.apply_rows(cluster_state, history.states("node"))
    there = [node for node in cluster_state.nodes.values() if node.present]
    old = [max(0, limits.now - node.samples[-1].at) / NS for node in there if node.samples]
    return {
        "nodes": len(there),
        "asleep": sum(node.power_state == "asleep" for node in there),
        "fresh": sum(age <= limits.reading_s for age in old),
        "oldest_s": max(old, default=None),
    }


def _resting(history: History, now: int) -> list[dict[str, Any]]:
    """The pods that wait because of a sample, the longest waiting first; read if there are any."""
    state = history.cluster_state()
    refusals = history.refusals(refusable_pods(state.pods)[:MOST_READ])
    found = sorted(resting_pods(state.nodes, state.pods, refusals), key=lambda each: each.since)
    return [
        {"pod": f"{pod.namespace}/{pod.name}", "s": max(0, now - since) / NS}
        for pod, since in found
    ]


def _part_warnings(parts: list[dict[str, Any]], logs: Path) -> list[str]:
    """Parts that are down, do not answer, or are behind; the projector before its readers."""
    warnings, projector_s = [], 0.0
    for part in sorted(parts, key=lambda part: "lag_s" not in part):
        name = part["name"]
        if not part["alive"]:
            warnings.append(f"{name} is down; see {logs / name}.log")
        elif part["position"] is None and name != "nats-server":
            warnings.append(f"{name} does not serve its metrics; it may still be starting")
        elif "lag_s" in part:
            projector_s = part["lag_s"]
            warnings += _projector_warnings(part)
        else:
            warnings += _view_warnings(part, projector_s)
    return warnings


def _projector_warnings(part: dict[str, Any]) -> list[str]:
    name, silent_s = part["name"], part["broker_silent_s"]
    holes = [f"broker: {text}" for text in described(part.get("incomplete", ())).values()]
    lag = [*_lag_warnings(name, part["lag_s"], part["lag_events"]), *holes]
    if silent_s <= BROKER_SILENT_S:
        return lag
    silence = f"the {name} has read no answer of a majority for {_duration(silent_s)}"
    return [f"broker: {silence}: it is down, is not reached, or has no CPU", *lag]


def _lag_warnings(name: str, behind_s: float, waiting: int) -> list[str]:
    if behind_s >= VIEW_NEVER_S:
        return [f"{name} has not folded the facts of before its start yet"]
    if behind_s > BEHIND_S:
        late = "it reads answers of the broker late"
        why = f"{waiting} facts are not folded yet" if waiting else late
        return [f"{name} is up to {_duration(behind_s)} behind the broker: {why}"]
    return []


def _view_warnings(part: dict[str, Any], projector_s: float) -> list[str]:
    """A view that is behind because of the projector is not reported besides it."""
    name, age_s = part["name"], part.get("view_age_s") or 0
    behind_s = part.get("view_behind_s") or 0
    if age_s >= VIEW_NEVER_S:
        return [f"{name} has received no heartbeat of the projector yet"]
    if age_s > SILENT_S:
        return [f"{name} received no heartbeat of the projector for {_duration(age_s)}"]
    if behind_s >= VIEW_NEVER_S > projector_s:
        return [f"{name} does not know how far it is behind the broker"]
    if behind_s > BEHIND_S and (projector_s <= BEHIND_S or behind_s > 2 * projector_s):
        how_far = f"up to {_duration(behind_s)} behind the broker"
        return [f"{name} is {how_far}, and the projector {_duration(projector_s)}"]
    return []


def _ledger_warnings(behind_s: float) -> list[str]:
    """From the database: a ledger that is down or hangs has no metrics that say so."""
    if behind_s <= LEDGER_BEHIND_S:
        return []
    what = f"the ledger lacks facts of the last {_duration(behind_s)}"
    return [f"{what}: figures of energy end before that"]


def _age_warnings(positions: dict[str, Any], is_running: bool) -> list[str]:
    age, readings = positions["commit_age_s"], positions["readings"]
    missing = readings["nodes"] - readings["fresh"]
    warnings = []
    if not is_running and age is not None:
        warnings.append(f"nothing runs: the data is {_duration(age)} old")
    elif missing:
        warnings.append(f"{missing} node(s) without a fresh reading are scored by the model")
    return warnings


def as_text(status: dict[str, Any]) -> str:
    lines = [_running_line(status)]
    lines += [_part_line(part) for part in status["parts"]]
    lines += lines_of(status["elsewhere"])
    age, readings = status["commit_age_s"], status["readings"]
    committed = f", last commit {_duration(age)} ago" if age is not None else ""
    lines.append(f"position     {status['position']}{committed}")
    if status["preset"]:
        lines.append(f"preset       {status['preset']}")
    signed = f"{status['entries']} entries, signed up to {status['signed_to']}"
    lines.append(f"decisions    {status['decisions']} ({signed})")
    oldest = readings["oldest_s"]
    age = f", the oldest {_duration(oldest)} old" if oldest is not None else ""
    lines.append(f"readings     {readings['fresh']} of {readings['nodes']} nodes fresh{age}")
    if readings["asleep"]:
        lines.append(f"asleep       {readings['asleep']} of {readings['nodes']} nodes")
    lines.append(f"quarantined  {status['quarantined']}")
    lines += _resting_lines(status["resting"])
    lines += _room_lines(status["room"])
    lines += [f"{name:<12} {url}" for name, url in status["endpoints"].items()]
    lines.append(f"data         {status['data']}")
    lines += [f"STALE        {what}" for what in status["stale"]]
    return "\n".join(lines)


def _running_line(status: dict[str, Any]) -> str:
    if status["up_s"] is not None:
        return f"running for {_duration(status['up_s'])}"
    return "running, not by joulie up" if status["running"] else "not running"


def _resting_lines(resting: list[dict[str, Any]]) -> list[str]:
    named = [f"{each['pod']} for {_duration(each['s'])}" for each in resting[:MOST_NAMED]]
    more = [f"and {len(resting) - MOST_NAMED} more"] if len(resting) > MOST_NAMED else []
    what = "refused on a sample, while a fit node exists"
    return [f"resting      {len(resting)} pod(s), {what}: {', '.join(named + more)}"][
        : len(resting)
    ]


def _room_lines(room: dict[str, Any]) -> list[str]:
    lines = [_stream_line(name, stream) for name, stream in room["streams"].items()]
    if room["database_bytes"] is not None:
        free = f", {_size(room['free_bytes'])} free on the disk" if room["free_bytes"] else ""
        lines.append(f"database     {_size(room['database_bytes'])}{free}")
    return lines


def _stream_line(name: str, stream: dict[str, Any]) -> str:
    held, most, days_left = stream["bytes"], stream["max_bytes"], stream["days_left"]
    share = f"{held / most:.0%} of {_size(most)}" if most else _size(held)
    kept = f", of {_duration(stream['kept_s'])}" if stream["kept_s"] else ""
    left = f", full in {days_left:.0f} day(s)" if days_left is not None else ""
    return f"{name:<12} {share}{kept}{left}"


def _size(bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if bytes < 1024:
            return f"{bytes:.0f} {unit}"
        bytes /= 1024
    return f"{bytes:.1f} GiB"


def _part_line(part: dict[str, Any]) -> str:
    state = f"pid {part['pid']}" if part["alive"] else "down"
    line = f"  {part['name']:<12}{state:<12}"
    if part["position"] is not None:
        line += f"at {part['position']:<11}"
    if "lag_s" in part:
        line += f"{_lag_text(part['lag_s'])}, {part['lag_events']} events waiting"
    age_s = part.get("view_age_s")
    if age_s is not None:
        line += _view_text(age_s, part.get("view_behind_s"))
    return f"{line.rstrip()}{_restarted(part['restarts'])}"


def _lag_text(behind_s: float) -> str:
    if behind_s >= VIEW_NEVER_S:
        return "behind by an unknown time"
    return f"up to {_duration(behind_s)} behind"


def _view_text(age_s: float, behind_s: float | None) -> str:
    if age_s >= VIEW_NEVER_S:
        return "no view yet"
    heard = f"projector seen {_duration(age_s)} ago"
    if behind_s is None:
        return heard
    if behind_s >= VIEW_NEVER_S:
        return f"behind by an unknown time, {heard}"
    return f"up to {_duration(behind_s)} behind, {heard}"


def _restarted(times: int) -> str:
    return f"   restarted {times} time(s)" if times else ""


def _duration(seconds: float) -> str:
    """A duration with a readable unit."""
    for least, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * least:
            return f"{seconds / least:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
