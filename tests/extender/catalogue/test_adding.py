"""The page about adding a term or a rule does add one: in a copy of the extender."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "contributing" / "add-a-term.md").read_text()
TERM, TERM_TEST, RULE, RULE_TEST = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
IN_TERMS, IN_WEIGHTS, IN_RULES = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)


def add_line(file: Path, diff: str, imported: str) -> None:
    """Adds the second line of a diff behind the first, and the import."""
    known, new = (line[1:] for line in diff.splitlines())
    text = file.read_text()
    assert text.count(f"{known}\n") == 1, f"{known} is not once in {file.name}"
    text = text.replace(f"{known}\n", f"{known}\n{new}\n")
    file.write_text(text.replace('"""\n\n', f'"""\n\n{imported}\n', 1))


def add_term(package: Path) -> None:
    (package / "terms" / "spare_cores.py").write_text(TERM)
    added = "from joulie_extender.terms.spare_cores import"
    add_line(package / "catalogue" / "terms.py", IN_TERMS, f"{added} SpareCores")
    add_line(package / "catalogue" / "weights.py", IN_WEIGHTS, f"{added} SpareCoresSettings")


def add_rule(package: Path) -> None:
    (package / "rules" / "no_card_at_all.py").write_text(RULE)
    added = "from joulie_extender.rules.no_card_at_all import NoCardAtAll"
    add_line(package / "catalogue" / "rules.py", IN_RULES, added)


KIT = str(ROOT / "tests" / "kit")


@pytest.mark.parametrize(("add", "test"), [(add_term, TERM_TEST), (add_rule, RULE_TEST)])
def test_following_the_page_adds_a_term_and_a_rule(
    add: Callable[[Path], None], test: str, tmp_path: Path
) -> None:
    package = tmp_path / "joulie_extender"
    shutil.copytree(ROOT / "extender" / "joulie_extender", package)
    add(package)
    file = tmp_path / "test_added.py"
    file.write_text(test)

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", file],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), KIT])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr
