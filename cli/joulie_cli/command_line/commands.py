"""The commands: a table of them by group; a module is imported only when it is used."""

import argparse
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from joulie_projections.component.wiring import Wiring

GROUPS = {  # folder below `joulie_cli` -> title in `joulie --help`
    "run": "Run Joulie, or one of its components",
    "ask": "Ask about pods, nodes, plans and energy",
    "audit": "Audit the log",
    "admin": "Administer the data, the keys and the cluster",
}
COMMANDS: dict[str, tuple[str, ...]] = {  # the modules of each group, as `--help` lists them
    "run": (
        *("admission", "agent", "archive", "backup", "console", "demo", "extender"),
        *("ledger", "operator", "projector", "restore", "shadow", "simulator", "up"),
        "witness",
    ),
    "ask": (
        *(
            "decisions",
            "energy",
            "explain",
            "gpus",
            "mcp",
            "place",
            "plans",
            "report",
            "requests",
            "simulate",
        ),
        *("sql", "status", "try_", "twin", "whatif"),
    ),
    "audit": (*("diff", "prove", "replay", "verify"),),
    "admin": (
        *("callout", "caps", "completion", "dead", "doctor", "grant", "keys", "migrate"),
        *("rebuild", "release", "scheduler_config", "signer", "target"),
    ),
}
# Without options of its own, a command is the component itself, with `SETTINGS` and `run`.
COMPONENTS = {
    "console": "joulie_console.component",
    "extender": "joulie_extender.component",
    "shadow": "joulie_extender.shadow_component",
}


class Program(NamedTuple):
    """The work of a command."""

    settings: Sequence[type]  # that it reads
    run: Callable[[argparse.Namespace, "Wiring"], int]  # returns the exit code
    # Those that only the local data need: with --server they are neither imported nor read.
    of_local_data: Callable[[], Sequence[type]] = tuple

    def settings_for(self, args: argparse.Namespace) -> Sequence[type]:
        asks_a_console = bool(getattr(args, "server", None))
        return self.settings if asks_a_console else self.all_settings()

    def all_settings(self) -> Sequence[type]:
        return (*self.settings, *self.of_local_data())


class Printed(NamedTuple):
    """A command that only prints what its options say: it reads neither settings nor data."""

    text: Callable[[argparse.Namespace], str]

    def all_settings(self) -> Sequence[type]:
        return ()


class CommandModule(Protocol):
    """A module of a group. `program` may import what it needs; the module itself may not."""

    def options(self, parser: argparse.ArgumentParser, /) -> None: ...
    def program(self) -> Program | Printed: ...


class _Component(NamedTuple):
    path: str

    def options(self, _: argparse.ArgumentParser, /) -> None:
        """None of its own."""

    def program(self) -> Program:
        module = import_module(self.path)
        return Program(module.SETTINGS, module.run)


class Command(NamedTuple):
    group: str
    module: str

    @property
    def name(self) -> str:
        return self.module.rstrip("_").replace("_", "-")  # `try` is a word of Python

    @property
    def summary(self) -> str:
        """The first line of the docstring, read from the source: an import takes longer."""
        with open(self._file, encoding="utf-8") as source:
            return source.readline().strip().strip('"').removesuffix(".")

    @property
    def examples(self) -> list[str]:
        """The lines of the docstring that are command lines."""
        with open(self._file, encoding="utf-8") as source:
            _, docstring, *_ = source.read().split('"""', 2)
        return [line for line in docstring.splitlines() if line.startswith("joulie ")]

    @property
    def _file(self) -> str:
        found = find_spec(self.path)
        assert found is not None
        return str(found.origin)

    @property
    def path(self) -> str:
        return COMPONENTS.get(self.module) or f"joulie_cli.{self.group}.{self.module}"

    def load(self) -> CommandModule:
        if self.module in COMPONENTS:
            return _Component(self.path)
        return cast(CommandModule, import_module(self.path))


@cache
def commands() -> dict[str, Command]:
    """All commands by name, in the order of their groups."""
    found = [Command(group, name) for group in GROUPS for name in COMMANDS[group]]
    return {command.name: command for command in found}


def every_setting() -> list[str]:
    """The settings of all commands, and what presets may give, as section.key. Imports them all,
    so only a file with others needs it."""
    from joulie_bus.runtime.preset_files import SECTIONS
    from joulie_bus.runtime.settings import BusSettings, declared, in_presets

    classes = [each for one in commands().values() for each in one.load().program().all_settings()]
    keys = [f"{of}.{row.name}" for of in SECTIONS for row in in_presets(of, *classes)]
    return [*(row.name for row in declared(BusSettings, *classes)), *keys]
