"""`joulie target`: the arguments, and a target in a running demo."""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bus_kit import NOON, SECOND
from joulie_bus.errors import WrongTarget
from joulie_bus.events import TargetSet
from joulie_cli.admin.target import as_text, require_known_label, target_of
from joulie_cli.command_line.parser import parsed
from joulie_demo import demo, joulie
from joulie_projections.state.state import Target

HOUR = 3600 * SECOND


def asked(*words: str) -> argparse.Namespace:
    return parsed(["target", *words])


def test_a_target_has_a_period_and_a_power() -> None:
    words = ("set", "evening", "--watts", "400", "--to", "+1h", "--feed", "a", "--because", "price")

    assert target_of(asked(*words), NOON) == TargetSet(
        target="evening",
        power_mw=400_000,
        feed="a",
        starts_at=NOON,
        ends_at=NOON + HOUR,
        because="price",
    )


def test_a_target_is_withdrawn_by_its_name() -> None:
    assert target_of(asked("clear", "evening"), NOON) == TargetSet(target="evening")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--watts", "400"), "needs --watts and --to"),
        (("--to", "+1h"), "needs --watts and --to"),
        (("--watts", "4", "--from", "+2h", "--to", "+1h"), "is not after its start"),
        (("--watts", "4", "--to", "2020-01-01"), "has passed"),
        (("--watts", "4", "--to", "soon"), "'soon' is not a time"),
    ],
)
def test_a_target_that_makes_no_sense_is_an_error(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(WrongTarget, match=why):
        target_of(asked("set", "t", *words), NOON)


def test_a_target_of_a_label_that_no_node_has_names_three_that_nodes_have() -> None:
    racks = [{"joulie.io/rack": f"r{at}"} for at in range(5)]
    given = asked("set", "t", "--watts", "4", "--to", "+1h", "--rack", "r9")
    require_known_label(asked("set", "--rack", "r1"), racks)

    with pytest.raises(WrongTarget) as refused:
        require_known_label(given, racks)

    assert str(refused.value) == (
        "No node has the label joulie.io/rack='r9'. Known are r4, r3, r2 (5 in all). "
        "Nothing was set."
    )


def test_targets_are_listed_with_their_period_and_whether_they_are_in_force() -> None:
    now = Target(2_000_000, NOON, NOON + HOUR, because="price")
    later = Target(1_234_567_500, NOON + HOUR, NOON + 2 * HOUR, feed="rack:r1")

    head, *lines = as_text({"now": now, "later": later}, NOON).splitlines()

    assert head.split() == ["target", "watts", "of", "from", "to", "in", "force", "because"]
    cells = [re.split(" {2,}", line) for line in lines]
    assert [(each[0], each[1], each[2], *each[5:]) for each in cells] == [
        ("later", "1,234,567.5", "rack:r1", "no"),
        ("now", "2,000", "cluster", "yes", "price"),
    ]


@pytest.mark.drill
def test_a_running_cluster_meets_a_target_and_replay_recomputes_the_plans(tmp_path: Path) -> None:
    """A target below the idle power cannot be met; the plans cap the eco nodes and say so."""
    with demo(tmp_path, "--nodes", "40", "--seed", "7") as running:
        running.await_decisions(40)
        words = ("--watts", "2000", "--to", "+10m", "--because", "drill")
        done = joulie("target", "set", "now", *words, "--data", tmp_path)
        assert done.returncode == 0, done.stderr
        running.wait_until(lambda: any("drill" in made["because"] for made in plans(tmp_path)))
        running.end()

    _, line = joulie("target", "--data", tmp_path).stdout.splitlines()
    assert line.split()[:3] == ["now", "2,000", "cluster"]
    assert "no mismatches" in joulie("replay", "--data", tmp_path).stdout


def plans(data: Path) -> list[dict[str, Any]]:
    told = json.loads(joulie("plans", "--all", "-o", "json", "--data", data).stdout)
    return [each["plan"] for each in told["items"] if "plan" in each]
