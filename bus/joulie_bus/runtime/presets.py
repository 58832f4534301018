"""Presets: PRESET chooses the defaults of other settings. A setting that is given wins."""

from collections.abc import Mapping

PRESET = "PRESET"
HEADROOM, SAVINGS = "headroom", "savings"
# The defaults that each preset replaces.
PRESETS: Mapping[str, Mapping[str, str]] = {
    HEADROOM: {},
    SAVINGS: {
        "SCORING": "energy",
        "POLICY_TYPE": "consolidate_and_sleep",
        "ECO_WITHOUT_CAPS": "false",
        "CPU_PODS_ON_GPU_NODES": "avoid",
        "GPU_PACKING": "fragmentation",
    },
}
PRESET_DOC = (
    "Defaults of the settings that it names: headroom, the published formula and no sleep; "
    "savings, scores by added watts, nodes that sleep, and no eco node without caps"
)


def preset(name: str) -> str:
    """headroom or savings"""
    if name not in PRESETS:
        raise ValueError("unknown")
    return name
