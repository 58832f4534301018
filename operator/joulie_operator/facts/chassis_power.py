"""What BMCs say of the power of a chassis: documents of Redfish, and the output of ipmitool.

A reading that is missing, of another type or not above 0 W is none: a running machine draws power.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from joulie_operator.facts.redfish_paths import own_path

REDFISH, IPMI = "redfish chassis", "ipmi dcmi chassis"  # the providers of readings
PROVIDERS = frozenset({REDFISH, IPMI})
_DCMI = re.compile(r"Instantaneous power reading:\s+(\d{1,6}) Watts")
_STATE = re.compile(r"Power reading state is:\s+(\w+)")


def of_environment(document: dict[str, Any]) -> float | None:
    """`PowerWatts` of EnvironmentMetrics."""
    found = document.get("PowerWatts")
    return watts(found.get("Reading")) if isinstance(found, dict) else None


def sensor_of(document: dict[str, Any]) -> str:
    """Where the reading of EnvironmentMetrics comes from, if it has none itself."""
    found = document.get("PowerWatts")
    return own_path(found.get("DataSourceUri")) if isinstance(found, dict) else ""


def of_sensor(document: dict[str, Any]) -> float | None:
    return watts(document.get("Reading")) if document.get("ReadingUnits") == "W" else None


def of_power(document: dict[str, Any]) -> float | None:
    """`PowerControl` of Power, which newer services call deprecated. The first entry is that of
    the chassis; others are parts of it."""
    controls = document.get("PowerControl")
    if not isinstance(controls, list) or not controls or not isinstance(controls[0], dict):
        return None
    return watts(controls[0].get("PowerConsumedWatts"))


def watts(found: Any) -> float | None:
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        value = float(found)
    except OverflowError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def of_dcmi(output: str) -> float | None:
    """None also while the BMC says that it measures nothing."""
    state, found = _STATE.search(output), _DCMI.search(output)
    if found is None or (state is not None and state[1] != "activated"):
        return None
    return watts(int(found[1]))


def one_of(found: Sequence[tuple[str, float]]) -> tuple[str, float] | None:
    """The only chassis with a reading. Of several, none says which is the node."""
    return found[0] if len(found) == 1 else None
