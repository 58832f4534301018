"""The files of the shipped presets: every number of scores and plans with its sentence.

    .venv/bin/python tests/kit/shipped_presets.py

writes them. A test compares the files with the code.
"""

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from joulie_bus.runtime import presets
from joulie_bus.runtime.preset_files import SECTIONS
from joulie_bus.runtime.settings import Declared, in_presets
from joulie_extender.settings import ScoringSettings
from joulie_operator.planning.policy_numbers import PolicyNumbers, described
from joulie_operator.settings import OperatorSettings

FOLDER = Path(presets.__file__).parent
READERS = (ScoringSettings, OperatorSettings)
TABLES = {"policy_numbers", "capacity_reserve"}
# What savings replaces: these numbers won over seeds on which none was chosen.
SAVINGS = {
    "scoring": "energy",
    "gpu_packing": "fragmentation",
    "policy_type": "consolidate_and_sleep",
    "eco_without_caps": "false",
}
HEADS = {
    presets.HEADROOM: "The published formula and policy, and no sleep: the default of each number. "
    "Copy what you change into a file of your own, with `base`, and name that file in PRESET.",
    presets.SAVINGS: "Pods go where they add the fewest watts, empty nodes sleep, and no node is "
    "eco whose caps nothing sets.",
}


def texts() -> Mapping[Path, str]:
    return {FOLDER / f"{name}.toml": "".join(_file(name)) for name in HEADS}


def _file(name: str) -> Iterator[str]:
    yield _comment(HEADS[name])
    only = SAVINGS if name == presets.SAVINGS else None
    if only is not None:
        yield f'\nbase = "{presets.HEADROOM}"\n'
    for section in SECTIONS:
        yield f"\n[{section}]\n"
        rows = [row for row in in_presets(section, *READERS) if only is None or row.name in only]
        for row in sorted(rows, key=lambda row: row.name in TABLES):
            yield from _lines(
                row._replace(default=(only or {}).get(row.name, row.default)), section
            )


def _lines(row: Declared, section: str) -> Iterator[str]:
    yield _comment(f"{row.doc} ({row.allowed}).")
    if row.name not in TABLES:
        yield f"{row.name} = {_value(row.default)}\n"
        return
    yield f"[{section}.{row.name}]\n"
    if row.name == "policy_numbers":
        for field in msgspec.structs.fields(PolicyNumbers):
            default = "..." if field.default is None else f"{field.default:g}"
            yield f"# {field.name} = {default}  # {described(field.name)}\n"


def _value(text: str) -> str:
    is_toml = text in ("true", "false") or text.replace(".", "", 1).isdecimal()
    return text if is_toml else f'"{text}"'


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in textwrap.wrap(text, 98, break_on_hyphens=False))


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text)
