import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert

from joulie_bus.errors import BadTrace
from joulie_projections.pods.demand import ask_of
from joulie_projections.pods.kubernetes_pod import Pod
from joulie_simulator.trace_file import LONGEST_S, Trace
from joulie_simulator.workload.workload import (
    KINDS,
    LEVELS,
    Size,
    Table,
    Workload,
    between,
    share_mb,
)

HEAD = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)
ROW = "openb-pod-0001,6000,12288,1,460,,LS,Running,427061,427661,427161\n"


def test_the_same_seed_gives_the_same_jobs() -> None:
    one, other, third = Workload(7, "a"), Workload(7, "a"), Workload(8, "a")
    jobs = [[workload.next() for _ in range(50)] for workload in (one, other, third)]

    assert jobs[0] == jobs[1] != jobs[2]
    assert one.pause(10, 0) == other.pause(10, 0)


def test_runs_with_the_same_seed_differ_only_in_names() -> None:
    [one, other] = [Workload(7, run).next() for run in ("a", "b")]

    assert one != other
    assert one._replace(uid="", name="") == other._replace(uid="", name="")


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000))
def test_the_requests_of_a_manifest_equal_those_of_its_job(seed: int) -> None:
    made = Workload(seed, "a").next()
    asked = ask_of(convert(made.manifest(), Pod))

    assert (asked.cpu_milli, asked.gpu_milli) == (round(made.cores * 1000), made.gpus * 1000)
    assert asked.memory_bytes == made.memory_mib * 2**20
    assert asked.workload == (made.annotation or "standard")


def test_a_job_declares_its_cards_in_annotations() -> None:
    job = (
        Workload(7, "a")
        .next()
        ._replace(annotation="", gpus=2, gpu_model="NVIDIA L4", gpu_mb=8192, linked=True)
    )

    assert job.manifest()["metadata"]["annotations"] == {
        "gpu-extender.mle.com/model": "NVIDIA L4",
        "gpu-extender.mle.com/vram-mb": "8192",
        "joulie.io/gpu-topology": "nvlink",
    }


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_row_of_quantiles_grows_from_level_to_level(kind: object) -> None:
    assert isinstance(kind, tuple)
    rows = [row for row in kind if isinstance(row, tuple) and len(row) == len(LEVELS)]

    assert len(rows) >= 4
    assert all(list(row) == sorted(row) for row in rows)


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, 10), (0.5, 445), (0.05, (10 * 121) ** 0.5), (0.99, 28_362), (1, 28_362)],
    ids=["least", "median", "between two", "most", "beyond"],
)
def test_between_two_levels_values_grow_by_factors(at: float, value: float) -> None:
    seconds = (10, 121, 149, 445, 1943, 12_836, 19_466, 28_362)

    assert between(seconds, at) == pytest.approx(value)


def test_half_of_the_cpu_pods_end_within_the_median() -> None:
    draw, table = random.Random(1), Table()
    sizes = [size for size in (table.draw(draw) for _ in range(4000)) if size.kind == "cpu"]

    assert sum(size.seconds <= 445 for size in sizes) / len(sizes) == pytest.approx(0.5, abs=0.03)


def test_the_arrival_rate_includes_bursts() -> None:
    workload = Workload(3, "a")
    came, now_s = 0, 0.0
    while now_s < 86_400:
        now_s += workload.pause(0.5, now_s)
        came += workload.burst_size()

    assert came / now_s == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize(("milli", "mb"), [(460, 7537), (1000, 0), (0, 0)])
def test_a_part_of_a_card_is_requested_as_memory(milli: float, mb: int) -> None:
    assert share_mb(milli) == mb


# --- a recorded trace -------------------------------------------------------------------------


def trace_of(tmp_path: Path, *rows: str) -> Trace:
    path = tmp_path / "pods.csv"
    path.write_text(HEAD + "".join(rows))
    return Trace.of(path)


def test_a_trace_gives_its_recorded_sizes(tmp_path: Path) -> None:
    size = trace_of(tmp_path, ROW).draw(random.Random(1))

    assert size._replace(utilisation=0) == Size("openb-1g", True, 6.0, 12_288, 1, 7537, 500, 0)
    assert 0.3 <= size.utilisation <= 0.9


def test_a_pod_that_never_ended_ends_after_a_week(tmp_path: Path) -> None:
    endless = ROW.replace("427661", "")

    assert trace_of(tmp_path, endless).draw(random.Random(1)).seconds == LONGEST_S


def test_a_workload_draws_from_a_trace_in_any_order(tmp_path: Path) -> None:
    rows = [ROW.replace("6000", str(milli)) for milli in (1000, 2000, 3000)]
    workload = Workload(1, "a", trace_of(tmp_path, *rows))

    assert {workload.next().cores for _ in range(50)} == {1.0, 2.0, 3.0}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (HEAD + ROW + ROW.replace("6000", "many"), r"line 3 cannot be used: .*'many'"),
        ("sn,cpu_milli\nx,1\n", r"line 2 cannot be used: there is no column memory_mib"),
        (HEAD, "there is nothing in it"),
    ],
    ids=["no number", "another file", "empty"],
)
def test_an_invalid_trace_is_reported_with_its_line(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(text)

    with pytest.raises(BadTrace, match=error):
        Trace.of(path)


def test_a_missing_trace_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="No such file"):
        Trace.of(tmp_path / "none.csv")
