"""The alert rules of the chart, by promtool: no alert fires on a day without a fault, at any phase
of the scrapes, and each fires on its fault."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from alert_rules import Scrapes, complaints, faulty, fired, quiet
from helm_chart import rendered
from kube_real import HELM, PROMTOOL, program_or_skip
from recorded_metrics import RULES, STEP_S, Series, idle_hour, metrics_of_rules, names_in

ALERTS: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
]
HOURS = 4  # the longest `for` is two hours
INTERVALS_S = (15, 30, 60)
# From the tenth minute on. A counter without labels is 0 before; one with labels that its component
# does not count from 0 begins with 1.
ZERO, ONE, GONE = "0x9 ", "1x240", "_x240"
RISES, BEGINS = "0x9 1x230", "_x10 1x230"


def age(name: str, instance: str, seconds: float) -> dict[str, str]:
    return {f'joulie_{name}{{instance="{instance}"}}': f"{ZERO}{seconds}x230"}


def gauge(name: str, labels: str, value: float = 1) -> dict[str, str]:
    return {f"joulie_{name}{{{labels}}}": f"{ZERO}{value}x230"}


def counted(name: str, labels: str, values: str = RISES) -> dict[str, str]:
    return {f"joulie_{name}_total{{{labels}}}": values}


SLOW = {
    f'joulie_answer_seconds_bucket{{le="{le}",verb="filter",instance="extender"}}': "0+0x240"
    for le in ("0.0005", "0.001", "0.002", "0.004", "0.008", "0.016", "0.05", "0.1")
}
OF_KUBERNETES = {
    "apiserver_admission_webhook_fail_open_count",
    "kube_deployment_status_replicas_available",
}
SCHEDULER = 'kube_deployment_status_replicas_available{deployment="joulie-scheduler"}'


def stops(component: str) -> dict[str, str]:
    return {f'joulie_component_info{{component="{component}",instance="{component}"}}': "1x9 _x230"}


FAULTS: Mapping[str, Mapping[str, str]] = {
    "JoulieComponentDown": stops("extender"),
    "JoulieComponentMissing": {key: GONE for key in stops("ledger")},
    "JoulieSchedulerDown": {SCHEDULER: "1x9 0x230"},
    "JoulieViewOld": age("view_age_seconds", "extender", 20),
    "JoulieViewUnknown": {'joulie_view_behind_seconds{instance="extender"}': GONE},
    "JoulieProjectorStuck": gauge("lag_events", 'instance="projector"', 2000)
    | {
        f'joulie_position{{instance="{part}"}}': "7x240"
        for part in ("projector", "extender", "operator", "console", "ledger", "simulator")
    },
    "JoulieLagging": age("lag_seconds", "projector", 12),
    "JoulieLagUnknown": {'joulie_lag_seconds{instance="projector"}': GONE},
    "JoulieManyEvents": counted("events", 'fate="folded",instance="projector"', "0+1300000x240"),
    "JoulieViewBehind": age("view_behind_seconds", "console", 20),
    "JoulieBrokerSilent": age("broker_silent_seconds", "projector", 4),
    "JoulieBrokerCopyIncomplete": gauge(
        "broker_missing_messages", 'server="nats-1",stream="JOULIE_OBS",instance="projector"'
    ),
    "JoulieLedgerBehind": age("ledger_lag_seconds", "ledger", 20),
    "JoulieIdleGpuHolders": gauge("idle_gpu_holders", 'instance="ledger"'),
    "JoulieFactsQuarantined": counted("events", 'fate="quarantined",instance="projector"'),
    "JoulieEventsRefused": counted("events_refused", 'stream="JOULIE_TEL",instance="projector"'),
    "JoulieObjectsLeftOut": counted("left_out", 'what="Pod",instance="operator"', BEGINS),
    "JoulieDecisionsDropped": counted("decisions_dropped", 'instance="extender"'),
    "JoulieAnswerMissing": gauge("answers_missing", 'instance="extender"'),
    "JouliePodsNotAdmitted": {
        'apiserver_admission_webhook_fail_open_count{name="pods.joulie.io"}': RISES
    },
    "JoulieAdmissionRefuses": counted(
        "admission_refused", 'reason="certificate",instance="admission"', f"{ZERO}1+1x230"
    ),
    "JoulieDecisionsNotShipped": age("decision_spool_seconds", "extender", 90),
    "JoulieAnswersSlow": SLOW
    | {
        f'joulie_answer_seconds_bucket{{le="{le}",verb="filter",instance="extender"}}': "0+9x240"
        for le in ("0.5", "5.0", "+Inf")
    },
    "JoulieExtenderRefuses": counted("requests_refused", 'reason="host",instance="extender"'),
    "JouliePermissionDenied": counted("broker_errors", 'kind="permission",instance="extender"'),
    "JoulieKeyChangeRefused": gauge("key_change_refused", 'instance="projector"'),
    "JoulieKeyChanged": counted("key_changes", 'instance="projector"'),
    "JoulieHeadsNotKept": gauge("heads_kept", 'place="configmap",instance="projector"', 0),
    "JoulieForeignRows": counted("foreign_rows", 'instance="projector"'),
    "JoulieLogForked": gauge("log_forked", 'instance="projector"'),
    "JoulieLogBehindHead": gauge("log_behind_head", 'instance="projector"'),
    "JoulieNotCosigned": gauge("witness_cosigned", 'witness="w",instance="projector"', 0),
    "JoulieDigestDiffers": counted("view_reloads", 'reason="digest",instance="extender"'),
    "JoulieNoPlans": counted(
        "plans", 'policy="consolidate_and_sleep",instance="operator"', "7x240"
    ),
    "JouliePlansStopped": gauge("plans_stopped", 'reason="view",instance="operator"'),
    "JoulieContestedCards": gauge("contested_cards", 'instance="operator"'),
    "JoulieNodesLost": gauge("nodes_lost", 'instance="operator"'),
    "JoulieRequestsDeferred": gauge("resizes_pending", 'instance="operator"'),
    "JouliePowerTargetMissed": gauge("power_drawn_watts", 'feed="",instance="operator"', 900)
    | gauge("power_target_watts", 'feed="",instance="operator"', 800),
    "JoulieCapsRefused": gauge("nodes_refusing_caps", 'instance="operator"'),
    "JoulieNotNotified": gauge("notify_failing", 'instance="console"'),
    "JoulieListenersCut": counted("stream_cut", 'instance="console"', f"{ZERO}2+2x230"),
    "JoulieStreamNearlyFull": gauge(
        "stream_bytes", 'stream="JOULIE_OBS",instance="projector"', 3.9e9
    ),
    "JoulieStreamFullSoon": gauge(
        "stream_days_left", 'stream="JOULIE_OBS",instance="projector"', 3
    ),
    "JoulieStreamFullTomorrow": gauge(
        "stream_days_left", 'stream="JOULIE_OBS",instance="projector"', 0.5
    ),
    "JoulieBrokerServerLost": gauge("broker_server_lost", 'server="n2",instance="projector"'),
    "JoulieNoArchive": {'joulie_archive_failing{instance="archive"}': GONE},
    "JoulieArchiveBehind": gauge("archive_failing", 'instance="archive"'),
    "JoulieArchiveLost": counted("archive_lost_messages", 'instance="archive"'),
    "JoulieNotTrimmed": age("archive_trim_due_seconds", "archive", 90_000),
    "JoulieArchiveNearlyFull": {'joulie_archive_free_bytes{instance="archive"}': "1000x240"},
    "JouliePublishRefused": counted(
        "publish_refused", 'what="facts",instance="operator"', f"{ZERO}1+1x230"
    ),
    "JoulieDiskFull": {'joulie_data_free_bytes{instance="projector"}': "1000x240"},
    "JoulieDiskNearlyFull": {'joulie_data_free_bytes{instance="projector"}': "9000000x240"},
    "JoulieDiskFullSoon": {
        'joulie_data_free_bytes{instance="projector"}': "4000000000-1000000x240"
    },
}


@pytest.fixture(scope="module")
def idle() -> list[Series]:
    return idle_hour()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    program_or_skip(PROMTOOL)
    return tmp_path


def test_every_alert_has_a_name_of_its_own_and_a_fault() -> None:
    names = [rule["alert"] for rule in ALERTS]

    assert sorted(names) == sorted(set(names))
    assert sorted(names) == sorted(FAULTS)


def test_the_faults_are_of_metrics_that_the_rules_read() -> None:
    """A misspelled one would plant nothing."""
    planted = {key.partition("{")[0] for fault in FAULTS.values() for key in fault}

    assert planted - metrics_of_rules() == OF_KUBERNETES


def test_the_recorded_hour_has_every_component_that_an_installation_has(
    idle: list[Series],
) -> None:
    instances = {label for each in idle for label in each.labels.split(",") if "instance" in label}

    assert {len(each.values) * STEP_S for each in idle} == {3600}
    assert instances == {
        f'instance="{part}"'
        for part in (
            *("projector", "extender", "operator", "console", "ledger", "simulator", "archive"),
        )
    }


# How a stop of what has no metrics of its own shows.
WITHOUT_METRICS: Mapping[str, Mapping[str, str]] = {
    "nats": age("broker_silent_seconds", "projector", 600),
    "scheduler": {SCHEDULER: "1x9 0x230"},
}


def components_of(home: Path) -> set[str]:
    """Of all pods that run on, with everything on that can be."""
    words = ["--set", "callout.enabled=true", "--set", "agent.caps=true"]
    trees = rendered(home, *words, "--set", "scheduler.admission=webhook")
    return {
        tree["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
        for tree in trees
        if tree["kind"] in ("Deployment", "StatefulSet", "DaemonSet")
    }


@pytest.mark.slow
def test_an_alert_fires_for_each_component_of_the_chart_that_stops(
    idle: list[Series], place: Path
) -> None:
    """Nothing but its own series ends: other components may show it sooner."""
    program_or_skip(HELM)
    silent = {
        component: any_alert(idle, component, place / component)
        for component in sorted(components_of(place))
    }

    assert len(silent) > 10
    assert [component for component, fired in silent.items() if not fired] == []


def any_alert(idle: list[Series], component: str, place: Path) -> set[str]:
    place.mkdir()
    own = f'instance="{component}"'
    fault = WITHOUT_METRICS.get(component) or stops(component) | {
        each.key: GONE for each in idle if own in each.labels and "component_info" not in each.name
    }
    return fired(idle, Scrapes(60, 0, 1), fault, place)


def hours_of(rule: dict[str, Any]) -> int:
    """Enough for its fault to fire it."""
    return 1 if rule.get("for", "0m").removesuffix("m") in ("0", "1", "2", "5", "10", "15") else 3


@pytest.mark.slow
def test_every_alert_fires_on_its_fault(idle: list[Series], place: Path) -> None:
    reads = {rule["alert"]: names_in(rule["expr"]) for rule in ALERTS}
    scrapes = {rule["alert"]: Scrapes(60, 0, hours_of(rule)) for rule in ALERTS}
    tests = [
        faulty([each for each in idle if each.name in reads[alert]], scrapes[alert], alert, fault)
        for alert, fault in FAULTS.items()
        if alert in reads
    ]

    assert complaints(tests, place) == ""


@pytest.mark.slow
def test_a_fault_that_is_not_planted_is_found_missing(idle: list[Series], place: Path) -> None:
    ages = [each for each in idle if each.name == "joulie_view_age_seconds"]
    said = complaints([faulty(ages, Scrapes(60, 0, 1), "JoulieViewOld", {})], place)

    assert "JoulieViewOld" in said


@pytest.mark.slow
@pytest.mark.parametrize("interval_s", INTERVALS_S)
def test_no_alert_fires_in_some_idle_hours(
    interval_s: int, idle: list[Series], place: Path
) -> None:
    phase_s = random.randrange(interval_s)

    assert complaints([quiet(idle, Scrapes(interval_s, phase_s, HOURS))], place) == ""


@pytest.mark.long
@pytest.mark.parametrize("interval_s", INTERVALS_S)
def test_no_alert_fires_on_an_idle_day_in_any_phase(
    interval_s: int, idle: list[Series], place: Path
) -> None:
    """A day in one phase, for rules that look back over a day; in all phases some hours."""
    days = [quiet(idle, Scrapes(interval_s, 0, 24))]
    hours = [quiet(idle, Scrapes(interval_s, phase_s, 2)) for phase_s in range(interval_s)]

    assert complaints([*days, *hours], place) == ""


@pytest.mark.slow
def test_an_age_that_rises_each_minute_is_found_in_some_phases(
    idle: list[Series], place: Path
) -> None:
    """As that of a view which is read once a minute only."""
    saw = Series("joulie_view_behind_seconds", 'instance="console"', [*map(float, range(60))] * 60)
    others = [each for each in idle if each.key != saw.key]
    said = [
        complaints([quiet([*others, saw], Scrapes(30, phase_s, 1))], place)
        for phase_s in (0, 10, 20)
    ]

    assert any("JoulieViewBehind" in each for each in said)
