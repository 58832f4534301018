"""`joulie`: parses the command line, runs one command and returns its exit code."""

import contextlib
import gc
import os
import sys
from collections.abc import Sequence

from joulie_bus.errors import JoulieError, NotStarted
from joulie_cli.command_line.commands import Printed, commands, every_setting
from joulie_cli.command_line.parser import parsed

NOTHING_RUNS, FAILED, INTERRUPTED = 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs as the whole process, unless it is given arguments."""
    try:
        return _run(sys.argv[1:] if argv is None else argv, is_process=argv is None)
    except KeyboardInterrupt:
        _discard_output()
        return INTERRUPTED


def _run(argv: Sequence[str], *, is_process: bool) -> int:
    args = parsed(argv)
    if is_process:
        gc.disable()
    program = commands()[args.command].load().program()
    if isinstance(program, Printed):
        print(program.text(args))
        return 0
    # Imported once the command line is valid: --help does without.
    from joulie_projections.component.wiring import wired

    if is_process:  # What was imported stays: to search it for garbage took a quarter of the time.
        gc.freeze()
        gc.enable()
    try:
        wires = wired(
            args.command, program.settings_for(args), args.data, args.config, every_setting
        )
        return program.run(args, wires)
    except BrokenPipeError:  # the reader of a pipe closed it
        _discard_output()
        return FAILED
    except Exception as error:
        message = _message_of(error)
        if message is None:
            raise
        from joulie_bus.core.redaction import masked

        for line in message.splitlines():  # one for each setting that cannot be used
            print(masked(f"joulie {args.command}: {line}"), file=sys.stderr)
        return NOTHING_RUNS if isinstance(error, NotStarted) else FAILED


def _discard_output() -> None:
    """Redirect stdout to the null device: Python flushes at exit and reports a closed pipe."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _message_of(error: BaseException) -> str | None:
    """The message of a JoulieError, also within exception groups; None for any other error."""
    if isinstance(error, JoulieError):
        return str(error)
    if isinstance(error, BaseExceptionGroup):
        message = [_message_of(inner) for inner in error.exceptions]
        return message[0] if all(message) else None
    return None


if __name__ == "__main__":
    sys.exit(main())
