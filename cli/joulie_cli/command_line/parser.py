"""The parser of the command line."""

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path

from joulie_cli.command_line.commands import GROUPS, Command, commands
from joulie_cli.command_line.one_line_errors import Parser

DESCRIPTION = "Energy- and GPU-aware scheduling for Kubernetes, with an auditable log."
EXIT_CODES = {
    0: "it was done, and what was checked is in order",
    1: "it was done, and what was checked is not in order, or nothing runs: "
    "a port, the disk or the kubeconfig cannot be used",
    2: "it was not done, such as for an unknown name; the error is on stderr",
    3: "it was done, and too little is known to say that it is in order",
    130: "Ctrl-C ended it",
}
TIMES = ("--at", "--since", "--compromised-since", "--from", "--to")


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Imports the options of the named command only."""
    if words and words[0] in commands():
        return parser_of(commands()[words[0]]).arguments(joined(words[1:]))
    top = parser()
    wrong = top.parse_args(words[:1]).command  # ends here for --help and --version
    similar = get_close_matches(wrong, commands(), n=3)
    hint = f" Similar: {', '.join(similar)}." if similar else ""
    top.error(f"there is no command {wrong!r}.{hint}")


def parser() -> Parser:
    """The parser of `joulie` without a command."""
    top = Parser(
        prog="joulie",
        usage="joulie COMMAND [options]",
        description=f"{DESCRIPTION}\n\n{overview()}",
        epilog=exit_codes(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    top.add_argument("command", metavar="COMMAND", help=argparse.SUPPRESS)
    return top


class _Version(argparse.Action):
    """Looks the version up when it is needed: the import takes longer than the rest."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"joulie {version('joulie')}")
        parser.exit()


def parser_of(command: Command) -> Parser:
    made = Parser(
        prog=f"joulie {command.name}",
        description=command.summary,
        epilog=f"{examples(command.examples)}\n\n{exit_codes()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # an abbreviation of today is ambiguous tomorrow
    )
    made.set_defaults(command=command.name)
    made.add_argument("--data", type=Path, metavar="DIR", help="the data directory")
    made.add_argument("--config", type=Path, metavar="FILE", help="settings (TOML)")
    command.load().options(made)
    return made


def overview() -> str:
    """The commands in their groups, each with its summary."""
    lines: list[str] = []
    for group, found in groupby(commands().values(), lambda command: command.group):
        lines += ["", f"{GROUPS[group]}:"]
        lines += [f"  {command.name:<17} {command.summary}" for command in found]
    return "\n".join([*lines[1:], "", "`joulie COMMAND --help` lists the options of a command."])


def examples(lines: Sequence[str]) -> str:
    return "\n".join(["examples:", *(f"  {line}" for line in lines)])


def exit_codes() -> str:
    return "\n".join(["exit codes:", *(f"  {code}  {why}" for code, why in EXIT_CODES.items())])


def joined(argv: Sequence[str]) -> list[str]:
    """Rewrite `--at -10m` as `--at=-10m`: argparse would parse the time as an option."""
    words: list[str] = []
    for word in argv:
        if words and words[-1] in TIMES and word[:1] == "-" and word[1:2].isdigit():
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words
