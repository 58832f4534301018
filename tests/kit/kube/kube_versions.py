"""What differs between the versions of Kubernetes, and which one a program is of."""

import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from joulie_answers.doctor.judgement.versions import numbers


class Differences(NamedTuple):
    """What a test has to know of a version."""

    policies: str  # the version of the API for MutatingAdmissionPolicy, as the chart uses it
    flags: Sequence[str] = ()  # of kube-apiserver, so that it serves them


# By the minor version that began it.
SINCE = {
    (1, 30): Differences(""),
    (1, 34): Differences(
        "v1beta1",
        (
            "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
            "--feature-gates=MutatingAdmissionPolicy=true",
        ),
    ),
    (1, 36): Differences("v1"),
}


def differences(version: str) -> Differences:
    """Those of a version such as v1.34.1."""
    return SINCE[max(since for since in SINCE if since <= numbers(version))]


@lru_cache
def reported(program: Path) -> str:
    """The version that a program of Kubernetes reports, such as v1.34.1."""
    words = [str(program), "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return str(done.stdout.split()[-1])
