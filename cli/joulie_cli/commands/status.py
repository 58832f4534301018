"""`joulie status`: what runs, how far it is, and how old what it believes is."""

import argparse
import json
import time
from typing import Any

from joulie_cli.data import DataDirectory, Running, is_alive
from joulie_cli.wiring import Wiring
from joulie_projections.history import History

SETTINGS = ()


def run(args: argparse.Namespace, wires: Wiring) -> int:
    found = status_of(wires.data)
    print(json.dumps(found) if args.json else as_text(found, time.time_ns()))
    return 0 if found["running"] else 1


def status_of(data: DataDirectory) -> dict[str, Any]:
    data.require()
    running = data.running()
    with History.of(data.database) as history:
        return {
            "running": running is not None,
            "parts": _parts(running),
            **_positions(history),
            "endpoints": running.endpoints if running else {},
        }


def _parts(running: Running | None) -> list[dict[str, Any]]:
    if running is None:
        return []
    return [
        {
            "name": name,
            "pid": pid,
            "alive": is_alive(pid),
            "restarts": running.restarts.get(name, 0),
        }
        for name, pid in running.parts.items()
    ]


def _positions(history: History) -> dict[str, Any]:
    checkpoint, counts = history.checkpoint(), history.counts()
    return {
        "position": checkpoint.position if checkpoint else 0,
        "epoch": checkpoint.epoch if checkpoint else 0,
        "committed_at": counts.committed_at,
        "decisions": counts.answers,
        "entries": counts.entries,
        "signed_to": counts.signed_to,
        "quarantined": counts.quarantined,
    }


def as_text(status: dict[str, Any], now: int) -> str:
    lines = ["running" if status["running"] else "not running"]
    for part in status["parts"]:
        state = f"pid {part['pid']}" if part["alive"] else "down"
        lines.append(f"  {part['name']:<11}{state}, {part['restarts']} restart(s)")
    committed = status["committed_at"]
    age = f", last commit {(now - committed) / 1e9:.1f} s ago" if committed else ""
    lines.append(f"position     {status['position']}{age}")
    signed = f"{status['entries']} entries, signed up to {status['signed_to']}"
    lines.append(f"decisions    {status['decisions']} ({signed})")
    lines.append(f"quarantined  {status['quarantined']}")
    lines.extend(f"{name:<12} {url}" for name, url in status["endpoints"].items())
    return "\n".join(lines)
