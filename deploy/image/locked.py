"""Prints the part of requirements.lock that an image needs, with its hashes.

    python deploy/image/locked.py run      what a running Joulie imports
    python deploy/image/locked.py wheels   that without the packages that have no wheel
    python deploy/image/locked.py plain    these packages: they are plain Python
    python deploy/image/locked.py build    what builds the wheel of Joulie
    python deploy/image/locked.py demo     what `make demo` needs, and what builds the wheel

The lock names for each package what requires it ("# via"), so that no resolver is needed. Python's
standard library is enough for this program.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLAIN = {"nkeys"}
_MANYLINUX = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
_BLOCK = re.compile(r"^(?=[a-z0-9])", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_VIA = re.compile(r"^ +# +(?:via )?([a-z0-9][a-z0-9._-]*)", re.MULTILINE)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def blocks(lock: str) -> dict[str, str]:
    """The lines of each package, by its name: one block for each range of Python versions."""
    found: dict[str, str] = {}
    for block in _BLOCK.split(lock):
        if match := _NAME.match(block):
            name = normal(match[0])
            found[name] = found.get(name, "") + block
    return found


def required_by(block: str) -> set[str]:
    return {normal(name) for name in _VIA.findall(block)}


def closure(roots: set[str], lock: dict[str, str]) -> list[str]:
    """The roots and all that they require, in the order of the lock."""
    names, before = set(roots), set[str]()
    while names != before:
        before = set(names)
        names |= {name for name, block in lock.items() if required_by(block) & before}
    return [name for name in lock if name in names]


def roots(what: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = project["project"]
    run = [
        *named["dependencies"],
        *named["optional-dependencies"]["agent"],
        *named["optional-dependencies"]["traces"],
    ]  # the image has it, too
    build = project["build-system"]["requires"]
    listed = {"build": build, "demo": [*named["dependencies"], *build, "editables"]}.get(what, run)
    found = [_NAME.match(line) for line in listed]
    return {normal(match[0]) for match in found if match}


def platforms(machine: str) -> list[str]:
    """The tags of wheels that run on the Linux of a machine, such as aarch64."""
    return [f"{each}_{machine}" for each in _MANYLINUX]


def text(what: str) -> str:
    lock = blocks((ROOT / "requirements.lock").read_text())
    names = closure(roots(what), lock)
    if what in ("wheels", "plain"):
        names = [name for name in names if (name in PLAIN) == (what == "plain")]
    return "".join(lock[name] for name in names)


def main(what: str) -> None:
    print(text(what), end="")


if __name__ == "__main__":
    main(sys.argv[1])
