"""Every command of the README, and every transcript of the docs, is run on the data of a demo."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

import joulie_forked

ROOT = Path(__file__).parents[2]
COMMANDS = [
    line.removeprefix(".venv/bin/")
    for line in re.findall(r"^\$ (.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
]
PACKING = re.findall(
    r"^\$ (joulie simulate gpus .*)$",
    (ROOT / "docs/simulation.md").read_text()
    + (ROOT / "docs/contributing/simulated-suites.md").read_text(),
    re.MULTILINE,
)
OVER_THE_DEMO = {"status", "decisions", "explain", "twin", "verify", "replay"}
ELSEWHERE = {
    # Against an API server, by the line in the file.
    "joulie up --kubeconfig ~/.kube/config": ("test_cluster.py", 'running("up", server'),
    "joulie try --from kubeconfig": ("test_try.py", '"try", "--from", "kubeconfig"'),
}
SHOWN_POD = re.search(r"explain ([a-z0-9-]+/[a-z0-9-]+)$", "\n".join(COMMANDS), re.MULTILINE)
TRANSCRIPTS = [
    (page, *transcript)
    for page in ("README.md", "docs/audit.md", "docs/twins.md")
    for transcript in re.findall(
        r"^\$ joulie ((?:explain|twin) [^\n]+)\n(\S.*?)(?:```|^\$)",
        (ROOT / page).read_text(),
        re.MULTILINE | re.DOTALL,
    )
]
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,qos,deletion_time\np0,4000,8192,1,1000,LS,9\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,96000,786432,8,G2\n"


def run(words: list[str], where: Path) -> subprocess.CompletedProcess[str]:
    told = {**os.environ, "JOULIE_DATA": "joulie-data"}
    return joulie_forked.joulie(*words[1:], environ=told, where=where)


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a shorter `make demo` in another directory."""
    recipe = re.search(r"^demo:.*\n\t(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    assert recipe[1].partition("; ")[2].split(" || ")[0] == "$(BIN)/joulie demo"
    place = tmp_path_factory.mktemp("readme")
    (place / "openb_pod_list_default.csv").write_text(PODS)
    (place / "openb_node_list_all_node.csv").write_text(NODES)
    for _ in range(5):  # beside other tests, a demo may end before its first decision
        done = run(shlex.split("joulie demo --headless --for 6s --nodes 30 --speed 600"), place)
        assert done.returncode == 0, done.stderr
        if scored_in(place):
            return place
    pytest.fail("five demos made no decision")


def scored_in(where: Path) -> list[dict[str, Any]]:
    asked = ["joulie", "decisions", "--kind", "prioritize", "-o", "json"]
    listed: dict[str, Any] = json.loads(run(asked, where).stdout or '{"items": []}')
    return list(listed["items"])


@pytest.fixture(scope="module")
def names(where: Path) -> dict[str, str]:
    """Replacements for the README's pod, node and times, from this demo."""
    scored = scored_in(where)[-1]
    node, pod = scored["winner"], f"{scored['namespace']}/{scored['name']}"
    assert SHOWN_POD is not None, "the README explains no pod by name"
    return {"POD": pod, "NODE": node, "-10s": "-1s", SHOWN_POD[1]: pod}


def by_name(command: str) -> bool:
    words = command.split()
    return words[0] == "joulie" and words[1] in OVER_THE_DEMO


BY_NAME = [command for command in COMMANDS if by_name(command)]


@pytest.mark.parametrize("command", [*BY_NAME, *PACKING])
@pytest.mark.long
def test_a_command_of_the_readme_or_of_the_page_on_packing_succeeds(
    command: str, where: Path, names: dict[str, str]
) -> None:
    words = [names.get(word, word) for word in shlex.split(command)]

    done = run(words, where)

    assert done.returncode == (1 if words[1] == "status" else 0), done.stderr  # it runs no more
    assert done.stdout


def test_the_page_on_packing_shows_each_way_to_compare() -> None:
    options = {word for command in PACKING for word in command.split()}

    assert options >= {"--weight", "--published", "--defragment"}


def test_no_command_of_the_readme_is_left_out() -> None:
    left = [command for command in COMMANDS if not by_name(command) and command not in ELSEWHERE]

    # tests/deploy/test_installed.py runs helm, and knows the label; tests/deploy/test_release.py
    # compares the name of the archive, and .ci/cluster makes it.
    others = [command for command in left if command.split()[0] not in {"helm", "kubectl"}]
    assert [command.split(" && ")[0] for command in others] == ["make image-archive"]


@pytest.mark.parametrize(("file", "line"), ELSEWHERE.values())
def test_commands_left_to_another_test_are_run_there(file: str, line: str) -> None:
    assert line in (Path(__file__).parent / file).read_text()


def labels(text: str) -> set[str]:
    """The words that begin a line, and the heads of columns: they are the same for all data."""
    found: set[str] = set()
    for line in text.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        are_words = all(re.fullmatch(r"[A-Za-z][A-Za-z ]*", cell) for cell in cells)
        if are_words and len(cells) != 2:  # two words are a label and its value
            found.update(cells)
        elif len(cells) > 1 and re.fullmatch(r"[a-z]+", cells[0]):
            found.add(cells[0])
    return found


@pytest.mark.parametrize(("page", "command", "shown"), TRANSCRIPTS)
def test_a_transcript_has_the_labels_that_the_program_prints(
    page: str, command: str, shown: str, where: Path, names: dict[str, str]
) -> None:
    verb, _, *options = command.split()
    of = names["POD" if verb == "explain" else "NODE"]
    known = {word: names["NODE"] for word in options if re.fullmatch(r"[a-z]+-\w+-\d+", word)}

    printed = run(
        [
            "joulie",
            verb,
            of,
            *(
                known.get(word, "-1s" if word[:1] == "-" and word[1:2].isdigit() else word)
                for word in options
            ),
        ],
        where,
    )

    assert printed.returncode == 0, printed.stderr
    assert len(labels(shown)) > 5
    assert labels(shown) - labels(printed.stdout) == set()
