"""Log lines as events with fields: JSON for machines, columns for a terminal.

Decisions and unexpected events are logged, single samples are not. Modules that compute never log.
"""

import logging
import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO, cast

from joulie_bus.core.redaction import masked
from joulie_bus.runtime.lean_import import without

with without("rich"):  # 5 MiB, for tracebacks in colours
    import structlog

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# nats-py upgrades a connection to TLS below asyncio's reader, which then says this at each end.
_WITHOUT_EFFECT = "returning true from eof_received() has no effect when using ssl"


def configure(level: str, style: str, component: str, stream: TextIO | None = None) -> None:
    """`style` is json or console; every line names the component that wrote it.

    Lines go to `stream`, by default standard error.
    """
    out = stream or sys.stderr
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=has_colours(out))
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
    structlog.contextvars.bind_contextvars(component=component)
    logging.getLogger().addHandler(_OF_LIBRARIES)


def has_colours(stream: TextIO) -> bool:
    """Colours are for terminals, unless the user's NO_COLOR is set (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def escaped(text: str) -> str:
    """The text with line ends and terminal control characters shown as their codes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _on_one_line(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Escapes names and texts of clients, which must not look like separate log lines.

    The lines of a traceback are indented instead.
    """
    for key, value in line.items():
        if key == "exception":
            line[key] = "\n  ".join(map(escaped, str(value).split("\n")))
        else:
            line[key] = _inside(value)
    return line


def _inside(value: object) -> object:
    """Lists and maps stay as they are; other values become text."""
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
    """Hides secrets in the whole line, as a field may hold the message of a library."""
    return masked(line)


class _Unfailing:
    """The output of log lines. A full disk or closed pipe loses lines and never raises."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except (OSError, ValueError):  # ValueError: the file was closed
            _count_lost()

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            _count_lost()


def get_logger(name: str) -> Any:
    """A lazily configured logger of the package with this name."""
    return structlog.get_logger(package=name)


class _OfLibraries(logging.Handler):
    """Warnings and errors of libraries, in the form of all other lines and without secrets."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except (TypeError, ValueError):  # its arguments do not fit, which must not stop the caller
            text = f"{record.msg} {record.args}"
        if text == _WITHOUT_EFFECT:
            return
        log = get_logger(record.name.partition(".")[0])
        write = log.error if record.levelno >= logging.ERROR else log.warning
        write("library_message", text=text, exc_info=record.exc_info)


_OF_LIBRARIES = _OfLibraries(logging.WARNING)


def _count_lost() -> None:
    from joulie_bus.runtime import metrics  # commands log, and have no metrics

    metrics.LOG_LINES_LOST.inc()
