"""What the chart takes from the code is up to date. Needs no helm."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from helm_chart import CHART, generator
from joulie_bus.runtime.settings import declared
from joulie_bus.streams.roles import Role
from joulie_operator.settings import OperatorSettings

ROOT = Path(__file__).parents[2]


MADE: dict[Path, str] = generator().files()


@pytest.mark.parametrize("path", MADE, ids=lambda path: str(path.name))
def test_a_file_of_the_chart_is_what_the_code_says(path: Path) -> None:
    assert path.read_text() == MADE[path], "run `make chart`"


FILES = sorted(path for path in (CHART / "files").rglob("*") if path.is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_of_the_chart_is_generated_or_one_of_deploy(path: Path) -> None:
    """deploy/ links to the files of the chart, and not the reverse: helm warns of links."""
    links = [each for each in (ROOT / "deploy").rglob("*") if each.is_symlink()]

    assert path in MADE or path in [each.resolve() for each in links]


def test_the_chart_holds_no_link() -> None:
    assert [path for path in CHART.rglob("*") if path.is_symlink()] == []


VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert chart["version"] == chart["appVersion"] == VERSION


@pytest.mark.parametrize("page", ["README.md", "docs/install.md", "CHANGELOG.md"])
def test_a_page_that_names_the_version_names_this_one(page: str) -> None:
    named = re.findall(
        r"joulie:(\d+\.\d+\.\d+)|\*\*Status\*\*: ([\d.]+\d)|^## ([\d.]+) - ",
        (ROOT / page).read_text(),
        re.MULTILINE,
    )

    assert "".join(named[0]) == VERSION


def test_every_role_has_a_user_at_the_broker_and_no_password_is_in_the_file() -> None:
    conf = (CHART / "files/nats.conf").read_text()

    assert set(re.findall(r'"user":"(\w+)"', conf)) == {str(role) for role in Role}
    assert set(re.findall(r'"password":([^,]+)', conf)) == {f"$NATS_{r.upper()}" for r in Role}


def test_the_label_of_the_readme_is_the_one_that_the_operator_selects() -> None:
    default = {row.name: row.default for row in declared(OperatorSettings)}["NODE_SELECTOR"]

    assert f"\n$ kubectl label node --all {default}\n" in (ROOT / "README.md").read_text()


def test_the_schema_describes_every_value_and_no_others() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    assert set(schema["properties"]) - {"global"} == set(values)
    of_pods = {*schema["$defs"], "image"}  # each section may have them; values.yaml has them once
    for name, below in values.items():
        section = schema["properties"][name]
        if "properties" in section and not section.get("additionalProperties"):
            assert set(section["properties"]) - of_pods == set(below) - of_pods, name
