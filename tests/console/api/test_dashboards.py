"""Dashboards and alerts use metrics and labels that exist."""

import json
import re
from pathlib import Path

import pytest

from joulie_bus.runtime import metrics

DEPLOY = Path(__file__).parents[3] / "deploy"
FILES = [*sorted((DEPLOY / "dashboards").glob("*.json")), DEPLOY / "alerts" / "joulie.yaml"]


def known() -> dict[str, set[str]]:
    """Every series of all processes, and its labels."""
    found: dict[str, set[str]] = {}
    for family in metrics.shown_by(*metrics.SHOWN_BY).collect():
        metric = next(
            value
            for value in vars(metrics).values()
            if getattr(value, "_name", None) == family.name
        )
        labels = set(metric._labelnames)
        for suffix in {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(
            family.type, [""]
        ):
            extra = {"le"} if suffix == "_bucket" else set[str]()
            found[f"{family.name}{suffix}"] = labels | extra
    return found


def expressions(path: Path) -> list[str]:
    if path.suffix == ".json":
        panels = json.loads(path.read_text())["panels"]
        return [target["expr"] for panel in panels for target in panel["targets"]]
    return re.findall(r"^\s+expr: (.+)$", path.read_text(), re.MULTILINE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_metric_in_a_query_exists(path: Path) -> None:
    asked = {name for text in expressions(path) for name in re.findall(r"joulie_\w+", text)}

    assert asked
    assert asked - set(known()) == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_label_in_a_query_exists(path: Path) -> None:
    series = known()
    for text in filter(re.compile("joulie_").search, expressions(path)):
        labels = set.union(*(series[name] for name in re.findall(r"joulie_\w+", text)))
        grouped = re.findall(r"by \(([^)]*)\)", text)
        asked = {label.strip() for group in grouped for label in group.split(",")}
        asked |= set(re.findall(r"[{,](\w+)=", text))

        assert asked - labels - {"instance"} == set(), text


@pytest.mark.parametrize("path", ["deploy/alerts/alertmanager.yaml", "docs/operations.md"])
def test_every_alert_that_is_named_elsewhere_exists(path: str) -> None:
    rules = (DEPLOY / "alerts" / "joulie.yaml").read_text()
    alerts = set(re.findall(r"- alert: (\w+)", rules))

    named = set(re.findall(r"\bJoulie(?!\b)\w+", (DEPLOY.parent / path).read_text()))
    assert named
    assert named - alerts == set()


def test_permanent_faults_have_an_alert() -> None:
    text = (DEPLOY / "alerts" / "joulie.yaml").read_text()

    assert all(
        metric in text
        for metric in (
            *("joulie_view_age_seconds", "joulie_lag_events", "joulie_decisions_dropped_total"),
            *("joulie_events_total", "joulie_broker_errors_total", "joulie_view_reloads_total"),
            *("joulie_stream_bytes", "joulie_stream_days_left", "joulie_data_free_bytes"),
            *("joulie_publish_refused_total", "joulie_heads_kept", "joulie_witness_cosigned"),
            *("joulie_plans_stopped", "joulie_nodes_lost", "joulie_nodes_refusing_caps"),
        )
    )
