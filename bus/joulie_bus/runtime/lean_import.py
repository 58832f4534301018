"""Imports a library without its optional dependencies, which every process would keep in memory."""

import contextlib
import sys
from collections.abc import Generator
from types import ModuleType
from typing import cast


@contextlib.contextmanager
def without(name: str) -> Generator[None, None, None]:
    """Within the block, importing this module fails as if it were not installed.

    A module that is imported already stays usable.
    """
    if name in sys.modules:
        yield
        return
    sys.modules[name] = cast("ModuleType", None)
    try:
        yield
    finally:
        del sys.modules[name]
