"""The page about adding an event does add one: in a copy of the bus and the projections."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "contributing" / "add-an-event.md").read_text()
EVENT, TEST, LINE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
IN_UNION, IN_FOLD, IN_EXAMPLES = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)
TWO_LINES = "\n\n\n"
NAME = "CapsDropped"


def change(file: Path, diff: str, imported: str = "") -> None:
    """Makes the change of a diff, and adds a name behind another one that is imported."""
    old, new = (
        "".join(f"{line[1:]}\n" for line in diff.splitlines() if line[0] == mark) for mark in "-+"
    )
    text = file.read_text()
    assert text.count(old) == 1, f"{old} is not once in {file.name}"
    text = text.replace(old, new)
    if imported:
        text = text.replace(f"{imported},", f"{imported}, {NAME},", 1)
    file.write_text(text)


def add_event(place: Path) -> None:
    events = place / "joulie_bus" / "events"
    with (events / "agents.py").open("a") as module:
        module.write(f"\n\n{EVENT.split(TWO_LINES)[1]}")  # it has the imports already
    change(events / "unions.py", IN_UNION, "CapsApplied")
    change(events / "__init__.py", f"-    CapsApplied,\n+    CapsApplied,\n+    {NAME},\n")
    change(place / "joulie_projections" / "fold" / "registry.py", IN_FOLD, "    CapsApplied")
    examples = place / "bus_kit" / "examples.py"
    change(examples, IN_EXAMPLES, "    CapsApplied")


def run(place: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(place)},
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_following_the_page_adds_an_event(tmp_path: Path) -> None:
    for room in ("bus/joulie_bus", "projections/joulie_projections", "tests/kit/bus_kit"):
        shutil.copytree(ROOT / room, tmp_path / Path(room).name)
    add_event(tmp_path)
    (tmp_path / "test_added.py").write_text(TEST)

    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "test_added.py")

    printed = run(tmp_path, *words)
    assert "2 passed" in printed, printed
    assert '"type": "caps.dropped"' in run(
        tmp_path, "-c", LINE.replace('"target.set"', '"caps.dropped"')
    )
