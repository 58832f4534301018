"""The judgement of `joulie doctor`: from what was seen to a finding."""

import re
from pathlib import Path
from typing import Any

import pytest

from joulie_answers.doctor.judgement import calls, limits, objects, versions
from joulie_answers.doctor.judgement.calls import LastCall, SchedulerPod, SpoolSeen, Waiting
from joulie_answers.doctor.judgement.findings import (
    Finding,
    Level,
    Unseen,
    as_text,
    exit_code,
    ok,
    warn,
)
from joulie_answers.doctor.judgement.limits import ArchiveSeen, Certificate, ClockSeen, DiskSeen
from joulie_answers.doctor.judgement.log import log_from, of_log
from joulie_answers.doctor.judgement.objects import Account, Admission, Part
from joulie_bus.streams.records import StreamSize
from joulie_bus.streams.subjects import Stream
from joulie_operator.resources.crds import DEFINITIONS, definition
from joulie_operator.resources.rights import OPERATOR
from joulie_projections.store.standbys import Standbys

OK, WARN, FAIL = Level.OK, Level.WARN, Level.FAIL
GONE = Unseen("refused")
NOW = 10**18
MINUTE = 60 * 10**9
POLICY = Admission(["v1beta1"], ["joulie-scheduler"], ["joulie-scheduler"], {}, 2)
TWINS = DEFINITIONS[0]
ARCHIVE = ArchiveSeen(failing=False, behind_s=5400, due_s=0, free=80, size=100)


@pytest.mark.parametrize(
    ("gauges", "levels", "shown"),
    [
        pytest.param({}, [OK, OK], "the log is signed", id="as it should be"),
        pytest.param(
            {"joulie_foreign_rows_total": 3.0},
            [WARN, OK],
            "3 rows of another program",
            id="foreign",
        ),
        pytest.param({"joulie_head_age_seconds": 90.0}, [OK, WARN], "is 90 s old", id="unsigned"),
        pytest.param(
            {"joulie_log_forked": 1.0}, [OK, FAIL], "a signed head has another hash", id="forked"
        ),
        pytest.param(
            {"joulie_log_behind_head": 1.0}, [OK, FAIL], "before its newest signed", id="behind"
        ),
    ],
)
def test_rows_of_other_programs_and_a_log_that_is_not_signed_are_found(
    gauges: dict[str, float], levels: list[Level], shown: str
) -> None:
    found = of_log(log_from(gauges))

    assert [each.level for each in found] == levels
    assert any(shown in each.seen for each in found)


@pytest.mark.parametrize(
    ("connected", "synchronous", "level"),
    [
        pytest.param(0, "", OK, id="one server"),
        pytest.param(1, "", WARN, id="asynchronous"),
        pytest.param(1, "FIRST 1 (two)", OK, id="one of one"),
        pytest.param(2, "ANY 1 (two, three)", OK, id="a quorum"),
        pytest.param(2, "two, three", WARN, id="no quorum of two"),
        pytest.param(0, "two", FAIL, id="every commit waits"),
    ],
)
def test_a_failover_without_loss_takes_a_synchronous_standby(
    connected: int, synchronous: str, level: Level
) -> None:
    assert limits.standbys(Standbys(connected, synchronous)).level is level


def stream(share: float, *, drops_old: bool = False) -> StreamSize:
    return StreamSize(Stream.DEC, int(share * 1000), 1000, drops_old, 1, 0, 0)


def test_the_tested_versions_of_kubernetes_are_those_that_the_page_has_tests_for() -> None:
    page = (Path(__file__).parents[4] / "docs/compatibility.md").read_text()
    rows = re.findall(r"^\| (1\.\d+[\d., ]*) \| (.+) \|$", page, re.M)
    tried = [
        versions.numbers(version)
        for named, what in rows
        if not what.startswith("nothing")
        for version in named.split(", ")
    ]

    assert tuple(tried) == versions.TESTED_KUBERNETES


def with_schema(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    version = definition(TWINS)["spec"]["versions"][0] | {"schema": schema} | more
    return {"spec": {"versions": [version]}}


CASES = [
    (versions.python((3, 10)), FAIL, "3.10"),
    (versions.python((3, 11)), OK, "3.11"),
    (versions.kubernetes("v1.29.4"), FAIL, "v1.29.4"),
    (versions.kubernetes("v1.31.0"), WARN, "tested with 1.32, 1.33, 1.34, 1.35, 1.36, 1.37"),
    (versions.kubernetes("v1.36.3"), OK, "v1.36.3"),
    (versions.kubernetes("v1.37.2"), OK, "v1.37.2"),
    (versions.kubernetes("v1.34.1+k3s1"), OK, "v1.34.1"),
    (versions.kubernetes("v1.40.0"), WARN, "tested with"),
    (versions.kubernetes("unreadable"), FAIL, "unreadable"),
    (versions.kubernetes(GONE), WARN, "not seen: refused"),
    (versions.broker("2.9.0"), WARN, "tested with 2.15"),
    (versions.broker("2.15.1"), OK, "2.15.1"),
    (versions.schema("", "0005", "0006"), FAIL, "schema none"),
    (versions.schema("0004", "0005", "0006"), FAIL, "needs 0005"),
    (versions.schema("0006", "0005", "0006"), OK, "0006"),
    (versions.schema("0007", "0005", "0006"), WARN, "knows 0006"),
    (limits.clock("it", ClockSeen(1.0, 0.5)), OK, "1.0 s ahead of ours"),
    (limits.clock("it", ClockSeen(-4.0, 0.5)), WARN, "4.0 s behind ours"),
    (limits.clock("it", ClockSeen(-4.0, 3.0)), OK, "+- 3.0 s"),
    (limits.clock("it", ClockSeen(45.0, 0.5)), FAIL, "45.0 s"),
    (limits.certificate(Certificate("a", NOW + 86_400 * 400), NOW), OK, "400 more days"),
    (limits.certificate(Certificate("a", NOW + 86_400), NOW), WARN, "expires in 1.0 days"),
    (limits.certificate(Certificate("a", NOW - 86_400), NOW), FAIL, "expired 1 days ago"),
    (limits.stream(stream(0.5), None), OK, "50%"),
    (limits.stream(stream(0.85), 3.0), WARN, "full in 3 days"),
    (limits.stream(stream(0.5), 0.4), WARN, "50%"),
    (limits.stream(stream(0.97), None), FAIL, "97%"),
    (limits.stream(stream(0.97, drops_old=True), None), OK, "97%"),
    (limits.events(500.0), OK, "500 a second"),
    (limits.events(25_000.0), WARN, "25,000 a second"),
    (limits.disk(DiskSeen(50, 100, 10)), OK, "50%"),
    (limits.disk(DiskSeen(10, 100, 10)), WARN, "10%"),
    (limits.disk(DiskSeen(4, 100, 10)), FAIL, "4%"),
    (limits.disk(DiskSeen(0, 0, 0)), FAIL, "0%"),
    (limits.archive(None), WARN, "none runs"),
    (limits.archive(GONE), WARN, "not seen: refused"),
    (limits.archive(ARCHIVE), OK, "1.5 h behind; 80% of its disk free"),
    (limits.archive(ARCHIVE._replace(failing=True)), FAIL, "fails, 1.5 h"),
    (limits.archive(ARCHIVE._replace(behind_s=5 * 3600)), WARN, "5.0 h behind"),
    (limits.archive(ARCHIVE._replace(behind_s=13 * 3600)), FAIL, "13.0 h behind"),
    (limits.archive(ARCHIVE._replace(due_s=3 * 86_400)), WARN, "not trimmed for 3.0 days"),
    (limits.archive(ARCHIVE._replace(free=10)), WARN, "10% of its disk"),
    (limits.archive(ARCHIVE._replace(free=2)), FAIL, "2% of its disk"),
    (objects.crd(TWINS, None), FAIL, "missing"),
    (objects.crd(TWINS, definition(TWINS)), OK, "v1alpha1"),
    (objects.crd(TWINS, with_schema({})), WARN, "another schema"),
    (objects.crd(TWINS, with_schema({}, name="v9")), FAIL, "serves v9"),
    (objects.rights(Account("operator", "it", []), "operator"), OK, "has all"),
    (objects.rights(Account("operator", "it", OPERATOR[:1]), "operator"), FAIL, "list pods"),
    (objects.devices("v1"), OK, "resource.k8s.io/v1"),
    (objects.devices(""), OK, "serves no version"),
    (objects.admission(POLICY, has_own_scheduler=True), OK, "2 namespaces"),
    (objects.admission(POLICY._replace(namespaces=0), has_own_scheduler=True), WARN, "no namesp"),
    (objects.admission(POLICY._replace(bound=[]), has_own_scheduler=True), FAIL, "no binding"),
    (
        objects.admission(POLICY._replace(policies=[]), has_own_scheduler=True),
        WARN,
        "serves them (v1beta1)",
    ),
    (
        objects.admission(Admission([], [], [], {}, 0), has_own_scheduler=True),
        WARN,
        "serves no Mutating",
    ),
    (
        objects.admission(Admission([], [], [], {"hook": False}, 0), has_own_scheduler=True),
        FAIL,
        "hook has no caBundle",
    ),
    (objects.admission(Admission([], [], [], {"h": True}, 1), has_own_scheduler=True), OK, "h;"),
    (objects.admission(Admission([], [], [], {}, 0), has_own_scheduler=False), OK, "not needed"),
    (objects.part(Part("operator", 2, 2)), OK, "2 of 2"),
    (objects.part(Part("operator", 1, 2, "no image")), WARN, "1 of 2 pods ready: no image"),
    (objects.part(Part("operator", 0, 2, "no image")), FAIL, "0 of 2"),
    (calls.reached("console", "there", "", "look"), OK, "there answers"),
    (calls.reached("console", "there", "refused", "look"), FAIL, "there: refused"),
    (calls.asked(LastCall(NOW - MINUTE, 7), NOW - 2 * MINUTE, NOW), OK, "the last 60 s ago"),
    (calls.asked(LastCall(NOW - 60 * MINUTE, 7), 0, NOW), OK, "60 min ago"),
    (calls.asked(LastCall(NOW - 9 * MINUTE, 7), NOW - MINUTE, NOW), FAIL, "does not ask"),
    (calls.asked(LastCall(0, 0), NOW - MINUTE, NOW), FAIL, "none, but a pod was placed"),
    (calls.asked(LastCall(0, 0), 0, NOW), WARN, "no decision yet"),
    (
        calls.asked(LastCall(0, 0), NOW - MINUTE, NOW, NOW - 1),
        WARN,
        "before the extender was ready",
    ),
    (calls.asked(LastCall(0, 0), NOW - MINUTE, NOW, NOW - 2 * MINUTE), FAIL, "does not ask"),
    (calls.answered(0), WARN, "none since"),
    (calls.answered(5), OK, "5 since"),
    (calls.spooled(SpoolSeen(0, 0, 0)), OK, "0 in the spool"),
    (calls.spooled(SpoolSeen(9, 50, 0)), OK, "9 in the spool"),
    (calls.spooled(SpoolSeen(9, 70, 0)), WARN, "9 in the spool, the oldest for 70 s"),
    (calls.spooled(SpoolSeen(0, 0, 2)), FAIL, "the signed log lacks 2 published entries"),
    (calls.waiting(Waiting([], 3)), OK, "3 wait"),
    (calls.waiting(Waiting(["a/b"], 3)), FAIL, "1 of 3: a/b"),
    (calls.scheduler_flags([]), WARN, "no pod of kube-scheduler"),
    (calls.scheduler_flags([SchedulerPod("ks", "")]), FAIL, "ks runs without --config"),
    (calls.scheduler_flags([SchedulerPod("ks", "/etc/k.yaml")]), OK, "/etc/k.yaml"),
]
UNSEEN = [
    versions.broker(GONE),
    versions.schema(GONE, "", ""),
    limits.clock("it", GONE),
    limits.disk(GONE),
    objects.crd(TWINS, GONE),
    objects.rights(GONE, "operator"),
    objects.devices(GONE),
    objects.admission(GONE, has_own_scheduler=True),
    calls.asked(GONE, 0, NOW),
    calls.answered(GONE),
    calls.spooled(GONE),
    calls.waiting(GONE),
    calls.scheduler_flags(GONE),
]


@pytest.mark.parametrize(("found", "level", "seen"), CASES, ids=lambda it: str(it)[:60])
def test_a_finding_has_the_level_of_what_was_seen(found: Finding, level: Level, seen: str) -> None:
    assert found.level is level, found
    assert seen in found.seen


@pytest.mark.parametrize("found", [case[0] for case in CASES] + UNSEEN, ids=lambda it: it.seen[:60])
def test_only_a_fault_comes_with_advice(found: Finding) -> None:
    assert bool(found.advice) == (found.level is not OK)


@pytest.mark.parametrize("found", UNSEEN, ids=lambda it: it.check)
def test_what_was_not_seen_is_neither_good_nor_a_failure(found: Finding) -> None:
    assert found.level is WARN
    assert found.seen == "not seen: refused"


def test_the_exit_code_is_1_if_a_finding_is_worse_than_what_is_accepted() -> None:
    good, doubtful = ok("a", "b"), warn("a", "b", "c")
    bad = calls.waiting(Waiting(["a/b"], 3))

    assert exit_code([]) == exit_code([good]) == 0
    assert exit_code([good, doubtful]) == 1
    assert exit_code([bad, good, doubtful]) == 1
    assert exit_code([good, doubtful], accepted=WARN) == 0
    assert exit_code([bad, doubtful], accepted=WARN) == 1


def test_the_text_names_the_level_and_the_advice() -> None:
    assert as_text([ok("disk", "free"), warn("clock", "late", "Use NTP.")]).splitlines() == [
        "LEVEL  CHECK  SEEN",
        "OK     disk   free",
        "WARN   clock  late",
        "              -> Use NTP.",
        "1 ok, 1 to look at, 0 failed",
    ]
