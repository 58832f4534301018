"""Which lines a test reaches, and how long it takes."""

import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

OFTEN = 1000  # lines of one function in one test: tracing more of them takes long


class Reach(NamedTuple):
    """What a test reaches of the package, by file, and how long it takes."""

    seconds: float
    lines: dict[str, set[int]]


UNKNOWN = Reach(0.0, {})


class Tracing:
    """Notes the lines of some files that run; of code that runs often, it notes all lines."""

    def __init__(self, files: Collection[Path]) -> None:
        self.lines: dict[str, set[int]] = {}
        self._events: dict[CodeType, int] = {}
        self._files = set(map(str, files))

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if code.co_filename not in self._files or self._events.get(code, 0) > OFTEN:
            return None
        seen = self.lines.setdefault(code.co_filename, set())

        def line(frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
            seen.add(frame.f_lineno)
            self._events[code] = self._events.get(code, 0) + 1
            if self._events[code] > OFTEN:
                seen.update(each for _, _, each in code.co_lines() if each is not None)
                frame.f_trace_lines = False
            return line

        return line(frame, event, arg)

    def start(self) -> None:
        self.lines, self._events = {}, {}
        threading.settrace(self)
        sys.settrace(self)

    def stop(self) -> None:
        sys.settrace(None)
