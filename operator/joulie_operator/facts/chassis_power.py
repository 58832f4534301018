"""What BMCs say of the power of a chassis: documents of Redfish, and the output of ipmitool.

A reading that is missing, of another type or not above 0 W is none: a running machine draws power.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

REDFISH, IPMI = "redfish chassis", "ipmi dcmi chassis"  # the providers of readings
PROVIDERS = frozenset({REDFISH, IPMI})
ROOT = "/redfish/v1/"
_DCMI = re.compile(r"Instantaneous power reading:\s+(\d{1,6}) Watts")
_STATE = re.compile(r"Power reading state is:\s+(\w+)")


def linked(document: dict[str, Any], *names: str) -> str:
    """The path that a document links to by this name; empty if there is none below the root."""
    found: Any = document
    for name in (*names, "@odata.id"):
        found = found.get(name) if isinstance(found, dict) else None
    return _path(found)


def members(document: dict[str, Any]) -> list[str]:
    found = document.get("Members")
    listed = found if isinstance(found, list) else []
    paths = [_path(each.get("@odata.id")) for each in listed if isinstance(each, dict)]
    return [path for path in paths if path]


def _path(found: Any) -> str:
    is_ours = isinstance(found, str) and found.startswith(ROOT) and ".." not in found
    return found if is_ours else ""


def of_environment(document: dict[str, Any]) -> float | None:
    """`PowerWatts` of EnvironmentMetrics."""
    found = document.get("PowerWatts")
    return watts(found.get("Reading")) if isinstance(found, dict) else None


def sensor_of(document: dict[str, Any]) -> str:
    """Where the reading of EnvironmentMetrics comes from, if it has none itself."""
    found = document.get("PowerWatts")
    return _path(found.get("DataSourceUri")) if isinstance(found, dict) else ""


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
