"""Which group of pods a pod is placed together with."""

from typing import Any

import msgspec
import pytest

from joulie_projections.pods.demand import ask_of
from joulie_projections.pods.groups import VOLCANO
from joulie_projections.pods.kubernetes_pod import Pod

JOBSET = {"jobset.sigs.k8s.io/jobset-name": "train"}


def group(**tree: Any) -> str:
    metadata = {"uid": "u", "name": "p", "namespace": "team", **tree}
    spec = {"schedulingGroup": {"podGroupName": metadata.pop("own", None)}}
    return ask_of(msgspec.convert({"metadata": metadata, "spec": spec}, Pod)).group


@pytest.mark.parametrize(
    ("tree", "name"),
    [
        ({}, ""),
        ({"labels": {"app": "web"}}, ""),
        ({"labels": JOBSET}, "jobset/train"),
        ({"labels": JOBSET | {"kueue.x-k8s.io/pod-group-name": "g"}}, "kueue/g"),
        ({"labels": {"volcano.sh/job-name": "j"}}, "volcano/j"),
        ({"annotations": {VOLCANO: "podgroup-1"}, "labels": JOBSET}, "volcano/podgroup-1"),
        ({"labels": JOBSET | {"scheduling.x-k8s.io/pod-group": "g"}}, "coscheduling/g"),
        ({"labels": JOBSET, "own": "own"}, "podgroup/own"),
        ({"annotations": {VOLCANO: "x" * 254}}, ""),
        ({"annotations": {VOLCANO: "two\nlines"}}, ""),
    ],
)
def test_the_most_specific_name_counts_and_a_name_of_no_object_does_not(
    tree: dict[str, Any], name: str
) -> None:
    assert group(**tree) == name
