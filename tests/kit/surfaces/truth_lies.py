"""Lies, one for each surface: a judge that does not find them judges nothing."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

Lie = Callable[[Any], None]


def _add(*path: str, amount: float = 1) -> Lie:
    def lie(answer: Any) -> None:
        for name in path[:-1]:
            answer = answer[name]
        answer[path[-1]] = (answer[path[-1]] or 0) + amount

    return lie


def _put(*path: Any, value: Any) -> Lie:
    def lie(answer: Any) -> None:
        for name in path[:-1]:
            answer = answer[name]
        answer[path[-1]] = value

    return lie


PAGE: Mapping[str, Lie] = {
    "a node more": _add("nodes"),
    "a kilowatt more": _add("measured_w", amount=1000),
    "an unhealthy card": _add("cards_unhealthy"),
    "a pod more": _add("pods_running"),
    "an unknown power that is zero": _put("measured_w", value=0.0),
    "an age that is not known": _put("behind_ms", value=None),
    "a spool that is not known": _put("spooled", value=None),
    "entries that wait": _put(
        *("warnings",),
        value=[{"part": "extender", "text": "9 entries of extender-0 are not at the broker"}],
    ),
    "a warning of the operator": _put(
        *("warnings",), value=[{"part": "operator", "text": "The operator's last plan: never."}]
    ),
}
METRICS: Mapping[str, Lie] = {
    "an epoch more": _add("projector", "joulie_epoch"),
    "a kilowatt more": _add("ledger", "joulie_power_watts", amount=1000),
    "a node that sleeps": _add("ledger", 'joulie_nodes{state="asleep"}'),
    "a card more": _add("ledger", 'joulie_gpus{of="nodes"}'),
    "a ledger a minute behind": _add("ledger", "joulie_ledger_lag_seconds", amount=60),
    "a component that does not answer": _put("extender", value={}),
    "a console that is paused": _put("console", "joulie_view_paused", value=1.0),
}
TEXT: Mapping[str, Callable[[str], str]] = {
    "a component that is down": lambda text: f"{text}\nSTALE        ledger is down; see it",
    "a silent projector": lambda text: (
        f"{text}\nSTALE        extender received no heartbeat of the projector for 7 s"
    ),
    "a silent broker": lambda text: (
        f"{text}\nSTALE        broker: the projector has read no answer of a majority for 9 s"
    ),
    "nodes without a reading": lambda text: (
        f"{text}\nSTALE        5 node(s) without a fresh reading are scored by the model"
    ),
    "entries without a head": lambda text: (
        f"{text}\nSTALE        the log is not signed: the first entry without a signed head is "
        "99.0 s old"
    ),
    "a sentence that is not known": lambda text: f"{text}\nSTALE        it rains",
}
COMMANDS: Mapping[str, Mapping[str, Lie]] = {
    "energy": {
        "energy": _add("meter_kwh", amount=0.01),
        "an hour": _add("complete_to_ms", amount=3_600_000),
        "energy of pods": _add("pods_kwh", amount=0.01),
    },
    "report": {
        "energy": _add("energy", "node", "meter_kwh", amount=0.01),
        "a bound pod": _add("placements", "bound"),
        "a pod on the best node": _add("placements", "on_the_best_node"),
    },
    "gpus": {
        "a card": _add("sums", "cards"),
        "an unhealthy card": _add("sums", "unhealthy"),
        "memory": _add("sums", "total_mb"),
    },
    "explain": {
        "another node": _put("pod", "node", value="elsewhere"),
        "another name": _put("pod", "name", value="another"),
    },
}
SHOWN: Mapping[str, tuple[str, str]] = {  # of each text, what is replaced, and by what
    "energy": (r"(meters +)[\d.]+", r"\g<1>99.5"),
    "report": (r"(The meters measured )[\d.]+", r"\g<1>99.5"),
    "gpus": (r"^\d+( card\(s\))", r"9999\1"),
    "explain": (r"(outcome +(?:bound to|runs on) )[\w.-]+", r"\1elsewhere"),
}


def lied(answer: Any, lie: Lie) -> Any:
    changed = copy.deepcopy(answer)
    lie(changed)
    return changed
