"""Every module can be imported alone with each supported Python, without a warning."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALL = """
import importlib, pkgutil, sys
for package in sys.argv[1:]:
    found = pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    names = [each.name for each in found if not each.name.endswith(("__main__", ".env"))]
    for name in names:
        importlib.import_module(name)
    print(package, len(names))
"""
PACKAGES = sorted(path.name for path in ROOT.glob("[a-z]*/joulie*") if path.is_dir())


def test_every_module_is_imported_without_a_warning() -> None:
    command = [sys.executable, "-W", "error", "-c", ALL, *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == PACKAGES
