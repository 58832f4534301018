"""An unknown name is exit code 2 with three known names; a known one without anything is 0."""

import os
import re
import subprocess
from typing import Any, NamedTuple

import pytest

import joulie_forked
from joulie_projections.history.history import History

Golden = Any  # of conftest.py
EXAMPLES = re.compile(r" (?:are|were) ((?:[^,]+, ){0,2}[^,(]+)")


class Names(NamedTuple):
    """Names that the recorded log knows."""

    node: str
    pod: str
    namespace: str


@pytest.fixture
def names(golden: Golden) -> Names:
    with History.of(golden.data / "joulie.db") as history:
        nodes = [name for name, node in history.cluster_state().nodes.items() if not node.gpus]
        [pod] = history.pod_names(1)
    return Names(nodes[0], pod, pod.partition("/")[0])


def asked_of(golden: Golden, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "ARCHIVE_DIR": str(golden.archive)}
    return joulie_forked.joulie(*words, "--data", golden.data, environ=environ)


@pytest.mark.parametrize(
    ("words", "examples"),
    [
        ("twin nosuch", 3),
        ("explain nosuch", 3),
        ("explain node nosuch", 3),
        ("explain plan nosuch", 1),
        ("explain POD --node nosuch", 3),
        ("plans --node nosuch", 3),
        ("decisions --node nosuch", 3),
        ("decisions --pod nosuch", 3),
        ("decisions --pod nosuch --follow", 3),
        ("decisions --namespace nosuch", 3),
        ("gpus --node nosuch", 3),
        ("gpus --pod nosuch", 3),
        ("gpus --model nosuch", 1),
        ("target clear nosuch", 0),
        ("target set t --watts 4000 --to +1h --rack nosuch", 0),
    ],
)
def test_an_unknown_name_is_exit_code_2_with_three_known_names(
    words: str, examples: int, golden: Golden, names: Names
) -> None:
    asked = [names.pod if word == "POD" else word for word in words.split()]

    done = asked_of(golden, *asked)

    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert "'nosuch'" in line
    listed = EXAMPLES.search(line)
    assert listed is not None, line
    known = [name for name in listed[1].split(", ") if name != "none."]
    assert len(known) >= min(3, examples), line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("plans --node NODE --limit 1", ""),
        ("gpus --node NODE", "No card matches."),
        ("gpus --pod POD --model L4 --free", "No card matches."),
        ("decisions --pod POD --since -1s", "entries matches."),
        ("decisions --namespace NAMESPACE --kind set-back", "entries matches."),
    ],
)
def test_a_known_name_without_anything_is_exit_code_0(
    words: str, said: str, golden: Golden, names: Names
) -> None:
    known = {"NODE": names.node, "POD": names.pod, "NAMESPACE": names.namespace}
    asked = [known.get(word, word) for word in words.split()]

    done = asked_of(golden, *asked)

    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout
