"""What 200 pods cost each component, in counts that no load of a machine changes."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import ratchet
from allocations import CompilerMissing, _compiled
from drill import COMPONENTS
from ratchet import Change, Number, changes, grown, keep, renewed

ROOT = Path(__file__).parents[1]
KITS = [str(ROOT / "tests" / "kit" / name) for name in ("", "broker", "kube", "whole", "cost")]
PLANTED = 0.05
Found = dict[str, dict[str, float]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    if not ratchet.is_pinned():
        pytest.skip(f"calls are counted with Python {ratchet.PYTHON}")
    try:
        _compiled(tmp_path_factory.mktemp("compiled"))
    except CompilerMissing as missing:
        pytest.skip(str(missing))
    return counted()


def counted(*words: str) -> Found:
    """In a process of its own, in which nothing is warm."""
    environ = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": ":".join(KITS)}
    program = [sys.executable, str(ROOT / "tests/kit/cost/ratchet.py"), "--print", *words]
    done = subprocess.run(program, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Found)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_no_component_costs_more_than_the_numbers_in_the_tree(found: Found) -> None:
    why = 'Make it cost less, or say why it has to: make costs BECAUSE="..."'
    assert [str(each) for each in grown(ratchet.read(), found)] == [], why


@pytest.mark.drill  # the work is counted three times
@pytest.mark.timeout(600)
def test_a_twentieth_more_of_each_component_is_found_and_named(found: Found) -> None:
    """And of nothing else: the same work costs the same."""
    planted = counted("--plant", str(PLANTED))

    kept = renewed({}, found, "without it")
    grew = grown(kept, planted)
    assert {each.component for each in grew if each.what == "calls"} == {
        f"{name}, {when}" for name in COMPONENTS for when in WHEN
    }
    assert {each.what for each in grew} <= {"calls", "allocations", "KiB allocated"}
    assert [str(each) for each in changes(kept, counted())] == []


WHEN = ("per pod", "at rest")
KEPT = {"ledger, per pod": {"calls": Number(100.0, "first count")}}


def test_a_number_may_grow_by_three_percent() -> None:
    assert not [*changes(KEPT, {"ledger, per pod": {"calls": 103.0}})]
    assert grown(KEPT, {"ledger, per pod": {"calls": 103.1}}) == [
        Change("ledger, per pod", "calls", 100.0, 103.1)
    ]


def test_a_number_that_shrank_is_renewed_so_that_it_cannot_grow_again() -> None:
    found = {"ledger, per pod": {"calls": 90.0}}

    assert [*changes(KEPT, found)] == [Change("ledger, per pod", "calls", 100.0, 90.0)]
    assert renewed(KEPT, found, "it costs less") == {
        "ledger, per pod": {"calls": Number(90.0, "it costs less")}
    }


def test_a_larger_number_is_kept_with_a_reason_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"ledger, per pod": {"calls": 120.0, "rows": 1.0}}
    monkeypatch.setattr(ratchet, "KEPT", tmp_path / "costs.json")

    assert keep(KEPT, found, "") == 1
    assert not ratchet.KEPT.exists()
    assert keep(KEPT, found, "reports by pod") == 0
    assert ratchet.read()["ledger, per pod"]["calls"] == Number(120.0, "reports by pod")


def test_each_number_in_the_tree_has_a_reason() -> None:
    numbers = [number for counts in ratchet.read().values() for number in counts.values()]

    assert numbers
    assert all(number.why for number in numbers)
