"""The schema of POLICY_NUMBERS: the name, the type and the bounds of each number.

In a file and in the chart it is a table. In the environment, in `joulie whatif` and in each plan of
the log it is name=number pairs. Policies read the pairs, and one schema checks both forms.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

Share = Annotated[float, Meta(ge=0, le=1, description="a share from 0 to 1")]
Seconds = Annotated[float, Meta(ge=0, description="a time in seconds, at least 0")]
Watts = Annotated[float, Meta(ge=0, description="a power in watts, at least 0")]


class PolicyNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults that are None: nothing is limited."""

    # With every policy. The target is of the cluster; power_target_w.FEED is that of a feed.
    power_target_w: Watts | None = None
    power_floor_pct: Annotated[
        float, Meta(ge=1, le=100, description="a percentage from 1 to 100")
    ] = 30.0
    caps_where_measured: Annotated[int, Meta(ge=0, le=1, description="0 for no, or 1 for yes")] = 0
    caps_trial: Share = 0.0
    # Of consolidate_and_sleep.
    sleep_after_s: Seconds = 600.0  # without pods, awake or asleep, before a node changes
    reserve: Share = 0.02  # of a pool that stays empty and awake
    max_share: Share = 0.8  # of a pool that may sleep
    wake_timeout_s: Seconds = 900.0  # after which another node is woken instead
    max_step: Share = 0.2  # of a pool that falls asleep within one RECONCILE_INTERVAL
    empty_below: Share = 0.0  # used share of a node that gets no more pods, to sleep later; 0: off
    evict_per_min: Annotated[
        float, Meta(ge=0, description="a number of pods in a minute, at least 0")
    ] = 0.0
    evict_after_s: Seconds = 300.0  # that these pods have to end by themselves


_PER_FEED = "power_target_w"
_TYPES: Mapping[str, Any] = {
    field.name: field.type for field in msgspec.structs.fields(PolicyNumbers)
}


def wrong_numbers(given: Mapping[str, float], *, others: bool) -> list[str]:
    """What is wrong with these numbers, one sentence each. `others`: a policy of another package
    reads numbers of its own, whose names only that policy knows."""
    wrong = [why for name, value in given.items() if (why := _wrong(name, value, others=others))]
    if given.get("evict_per_min", 0) > 0 and not given.get("empty_below", 0):
        wrong.append(
            "evict_per_min evicts only from nearly empty nodes: it needs empty_below above 0"
        )
    return wrong


def _wrong(name: str, value: float, *, others: bool) -> str | None:
    known = name.partition(".")[0] if name.startswith(f"{_PER_FEED}.") else name
    if known in _TYPES:
        try:
            msgspec.convert(value, _TYPES[known], strict=False)
        except msgspec.ValidationError:
            return f"{name}={value:g} is not {described(known)}"
        return None
    return None if others else f"there is no {name}; there are {', '.join(_TYPES)}"


def described(name: str) -> str:
    return str(_schema()["properties"][name]["description"])


def _schema() -> dict[str, Any]:
    whole = msgspec.json.schema(PolicyNumbers)
    found: dict[str, Any] = whole["$defs"][PolicyNumbers.__name__]
    found["properties"] = {name: _without_null(each) for name, each in found["properties"].items()}
    return found


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Of a number or none: a table leaves out what it does not set."""
    kept = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    number: dict[str, Any] = next(
        (each for each in schema.get("anyOf", ()) if each["type"] != "null"), {}
    )
    return kept | number


def json_schema() -> dict[str, Any]:
    """Of the table, for the chart. Numbers of other names are of policies of other packages, or
    power_target_w.FEED, and the operator checks them."""
    properties = _schema()["properties"]
    targets = properties[_PER_FEED]
    per_feed = {"type": "object", "additionalProperties": targets}
    return {
        "type": "object",
        "properties": properties | {_PER_FEED: {"anyOf": [targets, per_feed]}},
        "additionalProperties": {"type": "number"},
    }
