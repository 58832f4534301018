"""The configuration of kube-scheduler that the code writes."""

import pytest
import yaml  # type: ignore[import-untyped]

from joulie_extender.protocol.scheduler_config import (
    CONFIGURATIONS,
    ClientFiles,
    Options,
    configuration,
    extenders,
    text_of,
    tree_of,
)

URL = "https://[fd00::1]:9876"
WHOLE = Options(
    URL,
    "split",
    files=ClientFiles(),
    name="yes",  # YAML reads it as a boolean unless it is quoted
    lease_namespace="joulie-system",
    percentage=100,
    weight=3,
    deadline_ms=250,
    resources=("nvidia.com/gpu", "example.com/card"),
)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_text_says_what_the_tree_says(name: str) -> None:
    fields = configuration(WHOLE._replace(configuration=name))

    assert yaml.safe_load(text_of(fields)) == tree_of(fields)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_no_line_is_longer_than_a_screen(name: str) -> None:
    lines = text_of(configuration(WHOLE._replace(configuration=name))).splitlines()

    assert [line for line in lines if len(line) > 100] == []


def test_options_reach_the_tree() -> None:
    tree = tree_of(configuration(WHOLE))
    cards, energy = tree["extenders"]

    assert tree["profiles"] == [{"schedulerName": "yes"}]
    assert tree["percentageOfNodesToScore"] == 100
    assert tree["leaderElection"]["resourceNamespace"] == "joulie-system"
    assert cards["urlPrefix"] == f"{URL}/gpu"
    assert energy["urlPrefix"] == f"{URL}/energy"
    assert {cards["weight"], energy["weight"]} == {3}
    assert [each["name"] for each in cards["managedResources"]] == list(WHOLE.resources)


def test_kube_scheduler_waits_longer_than_the_extender_thinks() -> None:
    blocks = [tree_of(block) for block in extenders(WHOLE)]

    assert [block["httpTimeout"] for block in blocks] == ["5s", "1250ms"]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_at_most_one_extender_binds_and_the_ignorable_ones_come_last(name: str) -> None:
    blocks = [tree_of(block) for block in extenders(Options(URL, name))]
    ignorable = [block["ignorable"] for block in blocks]

    assert sum("bindVerb" in block for block in blocks) == (name != "energy")
    assert ignorable == ([False, True] if name == "split" else [True])


def test_without_tls_no_files_are_named() -> None:
    [block] = extenders(Options("http://127.0.0.1:9876"))

    assert {"enableHTTPS", "tlsConfig"} & tree_of(block).keys() == set()
