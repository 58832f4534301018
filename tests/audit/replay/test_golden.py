"""The golden log decides the same today: scores change only on purpose."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit_kit import NoFacts, restore_into
from joulie_answers.readers.history import row_of
from joulie_answers.views.decision_text import candidates_of, describe
from joulie_audit.archive.archived_facts import ArchivedFacts
from joulie_audit.archive.parts import Archive
from joulie_audit.recompute.fold import FoldedState
from joulie_audit.replay.recorded import PositionQueue, answers_of, declared_in
from joulie_audit.replay.replay import ReplayReport, replay
from joulie_audit.verify.verify import verify
from joulie_audit.verify.verify_archive import verify_archive
from joulie_bus.errors import ArchiveBroken
from joulie_bus.events import PrioritizeDecided
from joulie_extender.catalogue.declaration import weights_of
from joulie_extender.catalogue.weights import Weights
from joulie_extender.decide.decide import scores_again
from joulie_extender.terms.freshness import SOURCES
from joulie_projections.decision_log import heads
from joulie_projections.history.history import History
from joulie_projections.state.gpu_arrivals import PRIOR, GpuDemand, GpuShape, with_pod
from joulie_projections.twin.power import marginal_w

pytestmark = pytest.mark.anyio
GOLDEN = Path(__file__).parents[1] / "golden"
ON_PURPOSE = (
    "If that is intended: `make golden` records a new log, and CHANGELOG.md states what changes "
    "for users and why. If not, the change breaks recorded decisions."
)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("golden") / "joulie.db"
    try:
        restore_into(GOLDEN, file)
    except ArchiveBroken as error:
        pytest.fail(f"The golden log folds differently: {error}\n{ON_PURPOSE}")
    return file


@pytest.fixture
def history(database: Path) -> Iterator[History]:
    with History.of(database) as opened:
        yield opened


async def replayed(history: History) -> ReplayReport:
    return await replay(history, ArchivedFacts(Archive.of(GOLDEN), NoFacts()))


async def test_the_golden_log_decides_as_it_did(history: History) -> None:
    done = await replayed(history)

    reported = "\n".join(f"  {miss.kind}: {miss.what}" for miss in done.reported)
    assert done.mismatches == 0, f"{done.mismatches} decisions changed:\n{reported}\n{ON_PURPOSE}"
    assert done.decisions > 100
    assert done.plans > 0


async def test_a_changed_coefficient_is_detected(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "joulie_extender.terms.marginal_power.marginal_w",
        lambda *args: marginal_w(*args) * 1.0000001,
    )

    done = await replayed(history)

    assert done.mismatches > 50
    assert re.match(r"headroom of \S+: ", done.reported[0].what)


async def test_a_changed_count_of_pods_is_detected(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores by expected fragmentation follow from counts that the replay folds again."""
    heavy = GpuShape(96_000, 1, 1000)
    other = with_pod(PRIOR, heavy, "")
    monkeypatch.setattr(
        "joulie_projections.twin.columns.TwinColumns.gpu_demand",
        property(lambda _: GpuDemand(other, other.sizes), lambda *_: None),
        raising=False,
    )

    done = await replayed(history)

    assert done.mismatches > 5
    assert any("packing" in miss.what for miss in done.reported), done.reported


async def test_the_golden_log_has_nodes_that_are_unknown_new_silent_and_gone(
    history: History,
) -> None:
    facts, folded = ArchivedFacts(Archive.of(GOLDEN), NoFacts()), FoldedState()
    logged, sources, strangers = PositionQueue(answers_of(history)), set[str](), set[str]()
    for manifest in history.manifests():
        folded.skip(await facts.of(manifest))
        for _, answer in logged.up_to(manifest.p_to):
            decision = answer.decision
            strangers |= {*decision.candidates.strangers}
            if isinstance(decision, PrioritizeDecided) and answer.weights is not None:
                found = scores_again(decision, folded.twin_columns(), answer.weights)
                sources |= {SOURCES[basis] for basis in found.basis.tolist()}

    assert sources == {"neutral", "undiscovered", "predicted", "measured"}
    known = {name for name, node in folded.cluster_state.nodes.items() if node.present}
    assert strangers & known, "kube-scheduler had a node that Joulie knew later"
    assert history.row_names().nodes() - known, "a node has left"


def test_every_entry_of_the_golden_log_is_described(history: History) -> None:
    names = history.row_names()
    weights = {each.settings: found for each in declared_in(history) if (found := weights_of(each))}
    described = [describe(row_of(entry), names, weights) for entry in history.entries()]

    assert [each.fault for each in described] == [None] * len(described)
    for each in described:
        if each.brief.verb in ("filter", "prioritize"):
            assert len(candidates_of(each.event, names, Weights())) == each.brief.candidates


def test_the_golden_log_verifies(history: History) -> None:
    public = heads.public_key(GOLDEN / "head.pub")

    assert verify(history, public, ()).flaw is None
    assert verify_archive(Archive.of(GOLDEN), public, history).flaw is None


def test_the_golden_log_is_small() -> None:
    size = sum(file.stat().st_size for file in GOLDEN.rglob("*") if file.is_file())

    assert 0 < size < 1_000_000
