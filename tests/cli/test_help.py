"""`joulie --help` and the command line as such."""

import argparse
import re
import shlex
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import pytest

import joulie_cli
import joulie_migrations
from joulie_bus.streams.roles import Role
from joulie_cli.admin import grant, migrate
from joulie_cli.ask import energy
from joulie_cli.command_line.commands import COMPONENTS, GROUPS, Command, Printed, commands
from joulie_cli.command_line.parser import EXIT_CODES, parsed, parser, parser_of
from joulie_cli.main import main
from joulie_projections.energy.report import By

FOLDER = Path(joulie_cli.__file__).parent
LARGE = (
    *("alembic", "cryptography", "kubernetes", "msgspec", "nats", "numpy", "rich", "sqlalchemy"),
    *("starlette", "structlog", "uvicorn"),
)
IMPORTED = f"print('imported:', [name for name in {LARGE!r} if name in sys.modules])"
MAIN = f"""
import sys
from joulie_cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert end.code == 0
{IMPORTED}
print('command lines:', [name for name in sys.modules if name.count('.') == 2])
"""


def ran(code: str, *words: str) -> list[str]:
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def test_help_lists_every_command_with_its_summary_and_imports_none() -> None:
    lines = ran(MAIN, "--help")

    listed = {line.split()[0]: line.split(None, 1)[1] for line in lines if line.startswith("  ")}
    assert {name: listed.get(name) for name in commands()} == {
        name: command.summary for name, command in commands().items()
    }
    assert lines[-2] == "imported: []"
    assert [group for group in GROUPS if f"joulie_cli.{group}." in lines[-1]] == []


def test_help_of_a_command_imports_its_options_alone() -> None:
    lines = ran(MAIN, "explain", "--help")

    assert any("--archive DIR" in line for line in lines)
    assert lines[-2] == "imported: []"
    assert "joulie_cli.ask.explain" in lines[-1]
    assert "joulie_cli.ask.twin" not in lines[-1]


def test_no_command_line_imports_a_large_library() -> None:
    code = "import sys\nfrom joulie_cli.command_line.commands import commands\n"
    code += "for command in commands().values(): command.load()\n" + IMPORTED

    assert ran(code) == ["imported: []"]


def test_the_summary_of_a_command_is_the_first_line_of_its_docstring() -> None:
    for command in commands().values():
        docstring = import_module(command.path).__doc__ or ""
        assert command.summary == docstring.splitlines()[0].removesuffix(".")
        assert len(command.summary) > 20


def test_every_command_names_a_program_with_settings() -> None:
    for command in commands().values():
        program = command.load().program()
        assert callable(program.text if isinstance(program, Printed) else program.run)
        assert all(isinstance(cls, type) for cls in program.all_settings())


def test_every_module_of_a_command_is_in_the_table() -> None:
    listed = {
        f"{each.group}/{each.module}.py"
        for each in commands().values()
        if each.module not in COMPONENTS
    }
    declared = {
        f"{group}/{path.name}"
        for group in GROUPS
        for path in (FOLDER / group).glob("*.py")
        if "def options(" in path.read_text()
    }

    assert listed == declared


def test_help_tells_the_exit_codes() -> None:
    for text in (parser().epilog or "", "\n".join(ran(MAIN, "twin", "--help"))):
        assert all(f"  {code}  {meaning}" in text for code, meaning in EXIT_CODES.items())


def test_options_offer_what_their_programs_know() -> None:
    assert migrate.PHASES == joulie_migrations.PHASES
    assert set(get_args(By)) == set(energy.BY)
    assert set(grant.ROLES) == set(Role)


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])

    assert (end.value.code, capsys.readouterr().out) == (0, f"joulie {version('joulie')}\n")


def test_an_unknown_command_gets_similar_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["energ"])

    assert end.value.code == 2
    assert "there is no command 'energ'. Similar: energy" in capsys.readouterr().err


def actions_of(command: Command) -> dict[str, argparse.Action]:
    return {flag: each for each in parser_of(command)._actions for flag in each.option_strings}


def test_every_command_that_prints_data_offers_the_same_formats() -> None:
    for command in commands().values():
        actions = actions_of(command)
        assert not {"--json", "--yaml", "--csv"} & actions.keys()  # -o has each of them
        if "-o" in actions:
            assert "json" in (actions["--output"].choices or ())
            assert command.name == "report" or "yaml" in (actions["--output"].choices or ())
            assert actions["-o"] is actions["--output"]


FROM_WHERE = {"try": ["kubeconfig"]}  # the source of what is tried


def test_from_and_to_are_times_in_every_command_but_of_a_trial() -> None:
    for name, command in commands().items():
        actions = actions_of(command)
        if name in FROM_WHERE:
            assert list(actions["--from"].choices or ()) == FROM_WHERE[name]
            continue
        assert {actions[flag].metavar for flag in ("--from", "--to") if flag in actions} <= {"TIME"}


def test_every_help_has_examples_that_the_command_accepts() -> None:
    for command in commands().values():
        assert command.examples
        for example in command.examples:
            assert f"  {example}\n" in (parser_of(command).epilog or "")
            program, *words = shlex.split(example.partition(" > ")[0])
            assert (program, parsed(words).command) == ("joulie", command.name)


def test_an_abbreviated_option_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(["replay", "--from", "5"])  # of --from-position

    assert "--from" in capsys.readouterr().err


def test_a_status_loads_no_client_of_the_broker_and_no_extender(tmp_path: Path) -> None:
    """It is asked often, and each of them takes as long as all the rest."""
    code = "import sys\nfrom joulie_cli.main import main\nmain(sys.argv[1:])\n" + IMPORTED
    code += "\nprint([name for name in sys.modules if name == 'joulie_extender.settings'])"
    data = tmp_path / "data"
    assert main(["migrate", "--data", str(data)]) == 0

    lines = ran(code, "status", "--data", str(data))

    assert lines[:2] == [
        "health       Nothing runs here, or nothing was recorded yet.",
        "not running",
    ]
    assert not {"nats", "kubernetes", "numpy", "starlette", "uvicorn"} & set(
        re.findall(r"\w+", lines[-2])
    )
    assert "joulie_extender.settings" not in lines[-1]


def test_completion_loads_no_large_library_at_the_start_of_a_shell() -> None:
    assert ran(MAIN, "completion", "bash")[-2] == "imported: []"
