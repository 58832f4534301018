"""Finds the commands: their modules are listed, and imported only when they are used."""

import argparse
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from joulie_cli.wiring import Wiring

GROUPS = {  # folder below `joulie_cli/commands` -> title in `joulie --help`
    "run": "Run Joulie, or one of its components",
    "ask": "Ask about pods, nodes, plans and energy",
    "audit": "Audit the log",
    "admin": "Administer the data, the keys and the cluster",
}
FOLDER = Path(__file__).parents[1] / "commands"


class Program(Protocol):
    """A module that does the work of a command."""

    @property
    def SETTINGS(self) -> Sequence[type]: ...  # the settings that it reads
    def run(self, args: argparse.Namespace, wires: "Wiring", /) -> int: ...  # the exit code


class CommandLine(Protocol):
    """A module of `joulie_cli.commands`."""

    def options(self, parser: argparse.ArgumentParser, /) -> None: ...
    def program(self) -> Program: ...


class Command(NamedTuple):
    group: str
    module: str

    @property
    def name(self) -> str:
        return self.module.replace("_", "-")

    @property
    def summary(self) -> str:
        """The first line of the docstring, read from the source: an import takes longer."""
        with (FOLDER / self.group / f"{self.module}.py").open(encoding="utf-8") as source:
            return source.readline().strip().strip('"').removesuffix(".")

    def load(self) -> CommandLine:
        return cast(CommandLine, import_module(f"joulie_cli.commands.{self.group}.{self.module}"))


@cache
def commands() -> dict[str, Command]:
    """All commands by name, in the order of their groups."""
    found = [
        Command(group, path.stem)
        for group in GROUPS
        for path in sorted((FOLDER / group).glob("[a-z]*.py"))
    ]
    return {command.name: command for command in found}


def every_setting() -> list[str]:
    """The settings of all commands. Imports them all, so only a file with others needs it."""
    from joulie_bus.runtime.settings import BusSettings, declared

    classes = [each for one in commands().values() for each in one.load().program().SETTINGS]
    return [row.name for row in declared(BusSettings, *classes)]
