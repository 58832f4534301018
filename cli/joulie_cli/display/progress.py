"""Shows that a command works, where stderr is a terminal."""

import contextlib
import sys
from collections.abc import Generator
from typing import Protocol


class Tell(Protocol):
    def __call__(self, done: int, total: int) -> None: ...


@contextlib.contextmanager
def progress(what: str, quiet: bool) -> Generator[Tell | None, None, None]:
    """A progress bar if stderr is a terminal; it is removed at the end."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
