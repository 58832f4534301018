"""Scripts for completion in bash, zsh and fish, made from the commands and their options."""

import argparse
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from joulie_cli.command_line.commands import commands
from joulie_cli.command_line.parser import parser_of

PATHS = {"DIR", "FILE", "HEAD"}  # names of values that are paths
NAMES = {"NODE": "nodes", "POD": "pods"}  # and that name something in the log
LISTED = "joulie completion {} 2>/dev/null"  # a script asks for the names when they are needed


class Argument(NamedTuple):
    """An option, or a positional argument if `flags` is empty."""

    flags: tuple[str, ...]
    help: str
    has_value: bool
    values: tuple[str, ...]  # that can be offered
    is_path: bool
    names: str  # what is listed for it; empty: nothing

    @property
    def listed(self) -> str:
        """The command that lists what can be offered; empty if none does."""
        return LISTED.format(self.names) if self.names else ""


class Completed(NamedTuple):
    name: str
    summary: str
    arguments: tuple[Argument, ...]

    def options(self) -> list[Argument]:
        return [argument for argument in self.arguments if argument.flags]

    def words(self) -> list[str]:
        """All that may follow the command: values of positional arguments, and flags."""
        return [word for each in self.arguments for word in (each.flags or _bash_values(each))]


def script(shell: str) -> str:
    found = [
        Completed(name, command.summary, tuple(map(_argument, parser_of(command)._actions)))
        for name, command in commands().items()
    ]
    lines = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](found)
    return "\n".join(lines)


def _argument(action: argparse.Action) -> Argument:
    return Argument(
        flags=tuple(action.option_strings),
        help=(action.help or action.dest).split(";")[0],
        has_value=action.nargs != 0,
        values=tuple(map(str, action.choices or ())),
        is_path=action.metavar in PATHS,
        names=NAMES.get(str(action.metavar), ""),
    )


# --- bash -------------------------------------------------------------------------------------


def _bash(found: Sequence[Completed]) -> Iterator[str]:
    yield "# source <(joulie completion bash)"
    yield "_joulie() {"
    yield '  local current=${COMP_WORDS[COMP_CWORD]} words=""'
    yield "  local command=${COMP_WORDS[1]} previous=${COMP_WORDS[COMP_CWORD-1]}"
    yield "  COMPREPLY=()"
    yield "  if ((COMP_CWORD == 1)); then"
    yield f'    words="{" ".join([*(each.name for each in found), "--help", "--version"])}"'
    yield "  else"
    yield '    case "$command $previous" in'
    for each in found:
        for option in each.options():
            if option.has_value:
                pattern = "|".join(f'"{each.name} {flag}"' for flag in option.flags)
                values = _bash_values(option)
                does = f'words="{" ".join(values)}"' if values else "return"
                yield f"      {pattern}) {does} ;;"
    yield "      *)"
    yield '        case "$command" in'
    for each in found:
        yield f'          {each.name}) words="{" ".join(each.words())}" ;;'
    yield "        esac ;;"
    yield "    esac"
    yield "  fi"
    yield '  COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield "complete -o default -F _joulie joulie  # where there is no word: names of files"


def _bash_values(argument: Argument) -> list[str]:
    return [*argument.values, *([f"$({argument.listed})"] if argument.listed else ())]


# --- zsh --------------------------------------------------------------------------------------


def _zsh(found: Sequence[Completed]) -> Iterator[str]:
    yield "#compdef joulie"
    yield "# source <(joulie completion zsh)"
    yield "_joulie() {"
    yield "  local -a commands=("
    for each in found:
        yield f"    {shlex.quote(f'{each.name}:{each.summary}')}"
    yield "  )"
    yield "  if (( CURRENT == 2 )); then _describe command commands; return; fi"
    yield "  shift words; (( CURRENT-- ))"
    yield "  case $words[1] in"
    for each in found:
        specs = [shlex.quote(_zsh_spec(argument, flag)) for argument, flag in _each_flag(each)]
        yield f"    {each.name}) _arguments {' '.join(specs)} ;;"
    yield "  esac"
    yield "}"
    yield "compdef _joulie joulie"


def _each_flag(command: Completed) -> Iterator[tuple[Argument, str]]:
    for argument in command.arguments:
        for flag in argument.flags or ("*",):
            yield argument, flag


def _zsh_spec(argument: Argument, flag: str) -> str:
    offers = f"({' '.join(argument.values)})" if argument.values else "_files"
    if argument.listed:
        offers = f"{{compadd -- $({argument.listed})}}"
    if not argument.flags:
        return f"*:{_escaped(argument.help)}:{offers}"
    has_offers = argument.values or argument.is_path or argument.listed
    value = f":value:{offers if has_offers else ' '}"
    return f"{flag}[{_escaped(argument.help)}]{value if argument.has_value else ''}"


def _escaped(text: str) -> str:
    for sign in "\\[]:":
        text = text.replace(sign, f"\\{sign}")
    return text


# --- fish -------------------------------------------------------------------------------------


def _fish(found: Sequence[Completed]) -> Iterator[str]:
    yield "# joulie completion fish | source"
    yield "complete -c joulie -f"
    yield "complete -c joulie -n __fish_use_subcommand -l help -l version"
    for each in found:
        yield (
            f"complete -c joulie -n __fish_use_subcommand -a {each.name} "
            f"-d {shlex.quote(each.summary)}"
        )
    for each in found:
        for argument in each.arguments:
            yield (
                f"complete -c joulie -n '__fish_seen_subcommand_from {each.name}' "
                f"{' '.join(_fish_words(argument))}"
            )


def _fish_words(argument: Argument) -> Iterator[str]:
    for flag in argument.flags:
        yield f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
    if argument.flags and argument.has_value:
        yield "-r -F" if argument.is_path else "-x"
    if argument.values:
        yield f"-a {shlex.quote(' '.join(argument.values))}"
    if argument.listed:
        yield f"-a {shlex.quote(f'({argument.listed})')}"
    yield f"-d {shlex.quote(argument.help)}"
