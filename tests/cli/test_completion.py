"""`joulie completion`: the scripts, run by the shells that this machine has."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from joulie_cli.command_line.commands import commands
from joulie_cli.main import main

Golden = Any  # of conftest.py
COMPLETED = {
    "joulie ver": {"verify"},
    "joulie energy --by n": {"namespace", "node"},
    "joulie energy --out": {"--output"},
    "joulie energy -o y": {"yaml"},
    "joulie keys r": {"replace", "retire", "rotate"},
    "joulie grant arch": {"archivist"},
}
ASK_BASH = """
source "$1"
read -ra COMP_WORDS <<< "$2"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_joulie
printf '%s\\n' "${COMPREPLY[@]}"
"""


def require(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"requires {shell}")


def script_for(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", shell]) == 0
    file = tmp_path / f"joulie.{shell}"
    file.write_text(capsys.readouterr().out)
    return file


def said_by(*words: str | Path, **environ: str) -> list[str]:
    done = subprocess.run(
        words, capture_output=True, text=True, check=True, timeout=60, env=os.environ | environ
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(("line", "wanted"), COMPLETED.items(), ids=COMPLETED)
def test_bash_completes_commands_options_and_values(
    line: str, wanted: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("bash")
    script = script_for("bash", tmp_path, capsys)

    assert set(said_by("bash", "--norc", "-c", ASK_BASH, "bash", script, line)) == wanted


def test_bash_offers_every_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require("bash")
    script = script_for("bash", tmp_path, capsys)
    # The line ends with an empty word, which `read` does not make.
    asked = ASK_BASH.replace("COMP_CWORD=$", 'COMP_WORDS+=("")\nCOMP_CWORD=$')

    offered = set(said_by("bash", "--norc", "-c", asked, "bash", script, "joulie"))

    assert offered == {*commands(), "--help", "--version"}


@pytest.mark.parametrize(("line", "wanted"), COMPLETED.items(), ids=COMPLETED)
def test_fish_completes_commands_options_and_values(
    line: str, wanted: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("fish")
    script = script_for("fish", tmp_path, capsys)

    asked = said_by("fish", "--no-config", "-c", f'source {script}; complete -C "{line}"')

    assert {each.split("\t")[0] for each in asked} == wanted


@pytest.fixture
def with_data(golden: Golden) -> dict[str, str]:
    """The command itself on PATH, over the recorded log."""
    programs = Path(sys.executable).parent
    return {"JOULIE_DATA": str(golden.data), "PATH": f"{programs}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("line", "listed"),
    [("joulie twin ", "nodes"), ("joulie gpus --node ", "nodes"), ("joulie explain ", "pods")],
)
def test_bash_and_fish_complete_the_names_of_nodes_and_pods(
    line: str,
    listed: str,
    with_data: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = said_by("joulie", "completion", listed, **with_data)
    begun, wanted = names[0][:5], {name for name in names if name.startswith(names[0][:5])}
    assert len(names) > 10
    offered = dict[str, set[str]]()
    if shutil.which("bash"):
        script = script_for("bash", tmp_path, capsys)
        words = ("bash", "--norc", "-c", ASK_BASH, "bash", script, f"{line}{begun}")
        offered["bash"] = set(said_by(*words, **with_data))
    if shutil.which("fish"):
        script = script_for("fish", tmp_path, capsys)
        asked = f'source {script}; complete -C "{line}{begun}"'
        found = said_by("fish", "--no-config", "-c", asked, **with_data)
        offered["fish"] = {each.split("\t")[0] for each in found}

    assert {shell: names & wanted for shell, names in offered.items()} == dict.fromkeys(
        offered, wanted
    )


def test_no_data_have_no_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "nodes", "--data", str(tmp_path / "none")]) == 0
    assert capsys.readouterr().out.strip() == ""


def test_zsh_reads_its_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require("zsh")
    script = script_for("zsh", tmp_path, capsys)
    code = f"autoload -Uz compinit; compinit -D -u; source {script}; print $_comps[joulie]"

    assert said_by("zsh", "-f", "-c", code) == ["_joulie"]
