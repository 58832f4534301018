import json
import re
from pathlib import Path

import pytest

from joulie_cli.main import main

PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
    "p0,4000,8192,1,1000,,LS,Running,0,100,0\n"
    "p1,4000,8192,1,460,,BE,Running,0,100,0\n"
    "p2,32000,65536,8,1000,,LS,Running,0,100,0\n"
)
NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"n{at},96000,786432,8,G2\n" for at in range(6)
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    pods, nodes = tmp_path / "pods.csv", tmp_path / "nodes.csv"
    pods.write_text(PODS)
    nodes.write_text(NODES)
    return ("--trace", str(pods), "--cluster", str(nodes), "--seeds", "2")


def test_all_policies_are_compared_in_one_table(
    files: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["simulate", "gpus", *files])
    head, *rows = capsys.readouterr().out.splitlines()

    assert code == 0
    assert re.split(" {2,}", head)[-3:] == ["unusable GPUs", "pending", "pending for 8"]
    assert [re.split(" {2,}", row.strip())[1] for row in rows] == [
        "kube-scheduler's default",
        "the article's formula",
        "the same, best fitting cards",
        "Joulie's /gpu",
        "Joulie's /gpu, gpu_packing=fit",
    ] * 2


def test_json_has_the_same_rows(files: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    main(["simulate", "gpus", "-o", "json", *files])
    rows = json.loads(capsys.readouterr().out)

    assert len(rows) == 10
    assert all(row["gpus"] == 48 and 0 < row["used"] <= 48 for row in rows)


def test_without_files_it_is_the_demo_cluster_and_its_pods(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["simulate", "gpus", "-o", "json", "--nodes", "40", "--seeds", "1"])

    assert {row["gpus"] for row in json.loads(capsys.readouterr().out)} == {88}


def test_a_missing_trace_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["simulate", "gpus", "--trace", str(tmp_path / "none.csv")])

    assert code == 2
    assert "none.csv cannot be used" in capsys.readouterr().err


def test_the_published_method_has_a_row_for_each_policy_seed_and_level(
    files: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "plot.svg"
    asked = ["--published", "--policies", "fgd,joulie", "--plot", str(plot), *files]
    code = main(["simulate", "gpus", "-o", "json", *asked])
    rows = json.loads(capsys.readouterr().out)

    assert code == 0
    found = [(row["policy"], row["seed"], row["arrived"]) for row in rows]
    levels = (50, 80, 90, 100, 130)
    assert found == [
        *((policy, seed, at) for policy in ("fgd", "joulie") for seed in (1, 2) for at in levels),
        *(("bound", None, at) for at in levels),
    ]
    assert "joulie" in plot.read_text()


def test_the_published_method_prints_means_of_all_policies_and_the_bound(
    files: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "gpus", "--published", *files]) == 0
    head, *rows = capsys.readouterr().out.splitlines()

    assert head.split() == [
        "arrived",
        *(x for at in (50, 80, 90, 100, 130) for x in (str(at), "%", "kW")),
    ]
    names = [
        "kube-default",
        "best-fit",
        "random",
        "fgd",
        "pwr-fgd",
        "joulie",
        "joulie-savings",
        "bound",
    ]
    assert [row.split()[0] for row in rows] == names


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (["--policies", "fgd,best"], "'best' is not a policy"),
    ],
)
def test_the_published_method_names_what_it_cannot_run(
    wrong: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["simulate", "gpus", "--published", *wrong])

    assert code == 2
    assert named in capsys.readouterr().err
