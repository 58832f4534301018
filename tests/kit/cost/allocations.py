"""Counts of allocations by component, by a small library that is compiled where a compiler is."""

import ctypes
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("allocation_counter.c")


class CompilerMissing(Exception):
    """There is no C compiler on this machine."""


class Allocations:
    """Once for a process: it cannot be taken out again. Components are numbers below 16."""

    def __init__(self, folder: Path) -> None:
        """Raises CompilerMissing."""
        self._library = ctypes.PyDLL(str(_compiled(folder)))
        for name in ("count_of", "bytes_of"):
            getattr(self._library, name).restype = ctypes.c_longlong
        self._library.install()
        self.count_for = self._library.count_for
        self.turn = self._library.turn

    def counts(self, component: int) -> tuple[int, int]:
        """The number of allocations, and their bytes."""
        return self._library.count_of(component), self._library.bytes_of(component)


def _compiled(folder: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise CompilerMissing("no C compiler (cc) is here to count allocations")
    made = folder / "allocation_counter.so"
    options = ("-std=gnu11", "-O2", "-shared", "-fPIC")
    subprocess.run([compiler, *options, "-o", str(made), str(SOURCE)], check=True)
    return made
