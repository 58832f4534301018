"""Log lines as events with fields: JSON for machines, columns for a terminal.

Decisions and surprises are lines; single samples are not. The thinking never logs, its callers do.
"""

import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO, cast

import structlog

from joulie_bus.runtime import metrics
from joulie_bus.runtime.redaction import masked

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(level: str, style: str, part: str, stream: TextIO | None = None) -> None:
    """`style` is json or console; every line carries the part that wrote it.

    Lines go to standard error, unless `stream` is where else.
    """
    out = stream or sys.stderr
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=out.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _on_one_line,
            renderer,
            _without_secrets,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Unfailing(out))),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(part=part)


def escaped(text: str) -> str:
    """With every character that could end a line, or steer a terminal, shown as its code."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _on_one_line(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Names and texts of clients are logged: they must not look like lines of their own.

    A traceback has lines; they are indented, so that none of them can look like one.
    """
    for key, value in line.items():
        if key == "exception":
            line[key] = "\n  ".join(map(escaped, str(value).split("\n")))
        else:
            line[key] = _inside(value)
    return line


def _inside(value: object) -> object:
    """Lists and maps stay what they are; anything else is shown by its text."""
    match value:
        case str():
            return escaped(value)
        case list() | tuple() | set() | frozenset():
            return [_inside(each) for each in value]
        case dict():
            return {escaped(str(name)): _inside(each) for name, each in value.items()}
        case bool() | int() | float() | None:
            return value
        case _:
            return escaped(str(value))


def _without_secrets(_logger: Any, _method: str, line: Any) -> str:
    """The whole line: a field may hold the message of any library."""
    return masked(line)


class _Unfailing:
    """Where lines go. A full disk or a closed pipe loses lines, and never stops who wrote them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except (OSError, ValueError):  # ValueError: it was closed
            metrics.LOG_LINES_LOST.inc()

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            metrics.LOG_LINES_LOST.inc()


def get_logger(room: str) -> Any:
    """A lazily configured logger; `room` says which package speaks."""
    return structlog.get_logger(room=room)
