"""Runs helm on the chart in deploy/. HELM may name another program than that of `make kube`."""

import importlib.util
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml  # type: ignore[import-untyped]

from kube_real import DEPLOY, HELM, ROOT, program

CHART = DEPLOY / "chart"
NAMESPACE = "joulie-system"
VERSION = "1.34.1"  # of the cluster that helm does not ask
DOCUMENTED = sorted(path.stem for path in CHART.glob("values*.yaml"))
Tree = dict[str, Any]


def helm(words: Sequence[str], home: Path, kubeconfig: Path | None = None) -> tuple[int, str]:
    """Runs helm at the root of the repository; returns its exit code and its output."""
    told = {**os.environ, "HOME": str(home), "KUBECONFIG": str(kubeconfig or home / "none")}
    done = subprocess.run(
        [program(HELM), *words], cwd=ROOT, env=told, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def template(home: Path, *options: str, version: str = VERSION) -> str:
    """The rendered chart, without a cluster."""
    words = ["template", "joulie", str(CHART), "-n", NAMESPACE, "--kube-version", version]
    words += ["--set", "generateSecrets=always"]
    code, text = helm([*words, *options], home)
    assert code == 0, text
    return text


def rendered(home: Path, *options: str, version: str = VERSION) -> list[Tree]:
    text = template(home, *options, version=version)
    return [tree for tree in yaml.safe_load_all(text) if tree]


def of_kind(trees: Sequence[Tree], kind: str) -> dict[str, Tree]:
    return {tree["metadata"]["name"]: tree for tree in trees if tree["kind"] == kind}


def pod_specs(trees: Sequence[Tree]) -> dict[str, Tree]:
    """The pods of all workloads, by kind and name."""
    found = {
        f"{tree['kind']}/{tree['metadata']['name']}": tree["spec"]
        for tree in trees
        if "spec" in tree
    }
    return {
        name: spec if name.startswith("Pod/") else spec["template"]["spec"]
        for name, spec in found.items()
        if name.startswith("Pod/") or "spec" in (spec.get("template") or {})
    }


def generator() -> ModuleType:
    """The program that writes what the chart takes from the code."""
    return loaded(DEPLOY / "chart_from_code.py")


def loaded(file: Path) -> ModuleType:
    """A program of deploy/ as a module."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
