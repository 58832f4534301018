"""Runs all checks: each observation, then its judgement."""

import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import joulie_migrations
from joulie_answers.doctor import observed_autoscalers, observed_here
from joulie_answers.doctor.judgement import autoscalers, calls, limits, objects, versions
from joulie_answers.doctor.judgement.calls import LastCall, SpoolSeen
from joulie_answers.doctor.judgement.findings import Finding, Unseen, not_seen
from joulie_answers.doctor.judgement.limits import ArchiveSeen, Certificate
from joulie_answers.doctor.judgement.log import log_from, of_log
from joulie_answers.doctor.observed_cluster import ClusterObserver, Installed, parts_of, seen
from joulie_answers.doctor.observed_here import BrokerSeen, DatabaseSeen
from joulie_answers.readers.gauges import Gauges, gauges_of
from joulie_bus.errors import SettingsError
from joulie_bus.jetstream.streams import declaration
from joulie_bus.runtime.settings import InForce
from joulie_bus.streams.fill_level import Growth, days_left, per_second
from joulie_bus.streams.records import StreamSize
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream, Subjects
from joulie_extender.settings import ServerSettings
from joulie_operator.cluster_settings import IN_CLUSTER
from joulie_operator.kube.api_client import ApiServer
from joulie_operator.planning.sleep import sleep_numbers
from joulie_operator.resources.crds import DEFINITIONS
from joulie_operator.settings import OperatorSettings
from joulie_projections.component.connecting import address_of, names_a_broker
from joulie_projections.component.data_directory import Running
from joulie_projections.component.wiring import Wiring
from joulie_projections.store.database import sqlite_file, without_password

NAME_A_CLUSTER = "Name it with --kubeconfig or KUBECONFIG."


LastCallOf = Callable[[ApiServer, str], Awaitable[LastCall]]


class Case(NamedTuple):
    """What is examined."""

    wires: Wiring
    settings: Sequence[InForce]
    cluster: str  # a kubeconfig, in-cluster, or empty for none
    namespace: str
    last_call: LastCallOf  # of kube-scheduler, as the console tells it
    certificates: Path | None = None  # a directory with those of the cluster, instead of Secrets

    @property
    def is_inside(self) -> bool:
        return self.cluster == IN_CLUSTER


async def examine(case: Case) -> list[Finding]:
    findings = [versions.python(sys.version_info[:2])]
    last: LastCall | Unseen | None = None
    if not case.cluster or is_here(case.wires):
        found = observed_here.database_of(case.wires)
        last = found if isinstance(found, Unseen) else found.last
        findings += [*_of_database(case.wires, found), *_of_disk(case.wires)]
        findings += _of_broker(case.wires, await observed_here.broker(case.wires))
        findings += await _of_addresses(case.wires)
    findings += _of_certificates(observed_here.certificates(case.settings))
    if not case.cluster:
        nothing = not_seen("cluster", Unseen("no cluster is named"), NAME_A_CLUSTER)
        asked = calls.asked(last or Unseen("no database"), 0, time.time_ns())
        return [*findings, asked, nothing]
    path = None if case.is_inside else Path(case.cluster)
    try:
        async with ApiServer.of(path) as api:
            cluster = ClusterObserver(api, case.namespace, is_inside=case.is_inside)
            return [*findings, *await _of_cluster(case, cluster, last)]
    except SettingsError as error:
        problem = "; ".join(error.mistakes)
        return [*findings, calls.reached("API server", case.cluster, problem, NAME_A_CLUSTER)]


def is_here(wires: Wiring) -> bool:
    """Whether the settings name the broker or the database of an installation, or hold its data."""
    file = sqlite_file(wires.data.database)
    has_data = file is not None and file.exists()
    return has_data or names_a_broker(wires) or wires.source.names("DATABASE_URL")


# --- this machine -------------------------------------------------------------------------------


def _of_database(wires: Wiring, found: DatabaseSeen | Unseen) -> list[Finding]:
    where = without_password(wires.data.database)
    problem = found.why if isinstance(found, Unseen) else ""
    advice = "Start it, or name another one with DATABASE_URL or --data."
    reached = calls.reached("database", where, problem, advice)
    if isinstance(found, Unseen):
        return [reached]
    oldest, newest = joulie_migrations.OLDEST, joulie_migrations.NEWEST
    schema = versions.schema(found.schema, oldest, newest)
    standbys = [limits.standbys(found.standbys)] if found.standbys else []
    return [reached, schema, *of_log(found.log), *standbys]


def _of_disk(wires: Wiring) -> list[Finding]:
    found = observed_here.disk(wires)
    return [] if found is None else [limits.disk(found)]


def _of_broker(wires: Wiring, found: BrokerSeen | Unseen) -> list[Finding]:
    where = address_of(wires, Role.AUDITOR).safe_url
    if isinstance(found, Unseen):
        advice = "Start it, or name another one with NATS_URL."
        return [calls.reached("broker", where, found.why, advice)]
    return [
        calls.reached("broker", where, "", ""),
        versions.broker(found.version),
        limits.clock("the broker", found.clock),
        *(limits.stream(size, _days_left(size)) for size in found.streams),
        limits.events(sum(map(per_second, found.streams))),
    ]


def _days_left(size: StreamSize) -> float | None:
    return days_left(size, Growth().per_day(size, time.time_ns()))


async def _of_addresses(wires: Wiring) -> list[Finding]:
    """The extender and the console of this machine, if they run here."""
    running = wires.data.running()
    if running is None:
        return []
    findings = []
    for name in ("extender", "console"):
        url = running.endpoints.get(name, "")
        problem = await observed_here.problem_of(url) if url else "it does not run"
        advice = f"See {wires.data.logs / name}.log."
        findings.append(calls.reached(name, url or "not started", problem, advice))
    gauges = gauges_of(running.metrics).get("extender")
    seen_gauges = [gauges] if gauges else Unseen("the extender serves no metrics")
    findings.append(calls.answered(_answers(seen_gauges)))
    findings.append(calls.spooled(_spools(seen_gauges)))
    if "simulator" not in running.parts:  # a demo ends before anything is full
        findings.append(limits.archive(_archive_here(running)))
    return findings


def _archive_here(running: Running) -> ArchiveSeen | Unseen | None:
    if "archive" not in running.parts:
        return None
    found = gauges_of(running.metrics).get("archive")
    return Unseen("it serves no metrics") if found is None else observed_here.archive_from(found)


def _of_certificates(found: Sequence[Certificate | Unseen]) -> list[Finding]:
    now_s = time.time()
    advice = "Check the file, or the Secret, with `openssl x509 -enddate`."
    return [
        not_seen("certificate", each, advice)
        if isinstance(each, Unseen)
        else limits.certificate(each, now_s)
        for each in found
    ]


def _answers(gauges: Sequence[Gauges] | Unseen) -> float | Unseen:
    if isinstance(gauges, Unseen):
        return gauges
    return sum(each.get("joulie_answers_total", 0) for each in gauges)


def _spools(gauges: Sequence[Gauges] | Unseen) -> SpoolSeen | Unseen:
    if isinstance(gauges, Unseen):
        return gauges
    return SpoolSeen(
        sum(each.get("joulie_decision_spool_events", 0) for each in gauges),
        max((each.get("joulie_decision_spool_seconds", 0) for each in gauges), default=0),
        sum(each.get("joulie_answers_missing", 0) for each in gauges),
    )


# --- the cluster --------------------------------------------------------------------------------


async def _of_cluster(
    case: Case, cluster: ClusterObserver, last: LastCall | Unseen | None
) -> list[Finding]:
    version = await seen(cluster.version())
    reach = calls.reached(
        "API server",
        case.cluster,
        version.why if isinstance(version, Unseen) else "",
        "Check the kubeconfig, and that this account may read /version.",
    )
    if isinstance(version, Unseen):
        return [reach]
    found = await seen(cluster.installed())
    installed = Installed({}) if isinstance(found, Unseen) else found
    crds = [objects.crd(each, await seen(cluster.crd(each.name))) for each in DEFINITIONS]
    return [
        reach,
        versions.kubernetes(version),
        limits.clock("the API server", await seen(cluster.clock())),
        *crds,
        *await _of_rights(case, cluster, installed),
        objects.devices(await seen(cluster.devices())),
        objects.admission(await seen(cluster.admission()), installed.has_own_scheduler),
        *await _of_pods(cluster, found),
        *await _of_secrets(case, cluster, installed),
        *await _of_calls(case, cluster, installed, last),
        *await _of_autoscalers(case, cluster.api),
    ]


async def _of_autoscalers(case: Case, api: ApiServer) -> list[Finding]:
    """Nothing where no node sleeps."""
    share = sleep_numbers(case.wires.source.load(OperatorSettings).rules()).max_share
    found = await seen(observed_autoscalers.beside_sleepers(api, share))
    return autoscalers.judged(found)


async def _of_rights(case: Case, cluster: ClusterObserver, installed: Installed) -> list[Finding]:
    """An extender that leaves binding to kube-scheduler needs no rights."""
    binds = installed.binds or case.wires.source.load(ServerSettings).binds == case.cluster
    parts = ["operator", *(["extender"] if binds else [])]
    return [objects.rights(await seen(cluster.account(part, installed)), part) for part in parts]


async def _of_pods(cluster: ClusterObserver, found: Installed | Unseen) -> list[Finding]:
    advice = "Name the namespace of the installation with --namespace."
    if isinstance(found, Unseen):
        return [not_seen("pods of Joulie", found, advice)]
    projectors = found.pods.get("projector", ())
    sizes = await _of_sizes(cluster, projectors) if projectors else []
    archive = [limits.archive(await _archive_in(cluster, found))] if found.pods else []
    return [*map(objects.part, parts_of(found)), *sizes, *archive]


async def _archive_in(cluster: ClusterObserver, found: Installed) -> ArchiveSeen | Unseen | None:
    pods = found.pods.get("archive", ())
    if not pods:
        return None
    gauges = await seen(cluster.gauges(pods))
    return gauges if isinstance(gauges, Unseen) else observed_here.archive_from(gauges[0])


async def _of_sizes(
    cluster: ClusterObserver, projectors: Sequence[dict[str, object]]
) -> list[Finding]:
    """Streams, database, disk and log, as the projector that leads has measured them."""
    gauges = await seen(cluster.gauges(projectors))
    if isinstance(gauges, Unseen):
        return [limits.disk(gauges)]
    leader = max(gauges, key=lambda each: each.get("joulie_position", 0))
    return [
        limits.disk(observed_here.disk_from(leader)),
        *of_log(log_from(leader)),
        *(
            limits.stream(size, leader.get(f"joulie_stream_days_left{{{size.stream}}}"))
            for size in observed_here.from_gauges(leader, _dropping())
        ),
    ]


def _dropping() -> frozenset[Stream]:
    """The streams that drop old messages if they are full."""
    declared = {stream: declaration(stream, Subjects("any")) for stream in Stream}
    return frozenset(stream for stream, each in declared.items() if each["discard"] == "old")


async def _of_secrets(case: Case, cluster: ClusterObserver, installed: Installed) -> list[Finding]:
    if case.certificates is not None:
        return _of_certificates(observed_here.certificates_in(case.certificates))
    found = await seen(cluster.certificates()) if installed.pods else []
    return _of_certificates([found] if isinstance(found, Unseen) else found)


async def _of_calls(
    case: Case, cluster: ClusterObserver, installed: Installed, last: LastCall | Unseen | None
) -> list[Finding]:
    now = time.time_ns()
    names = await seen(cluster.scheduler_names())
    placements = names if isinstance(names, Unseen) else await seen(cluster.placements(names, now))
    if last is None:
        last = await seen(case.last_call(cluster.api, case.namespace))
    newest = 0 if isinstance(placements, Unseen) else placements.newest
    extenders = installed.pods.get("extender", ())
    findings = [
        calls.waiting(placements if isinstance(placements, Unseen) else placements.waiting),
        calls.asked(last, newest, now, installed.extender_ready_since),
    ]
    if extenders:
        gauges = await seen(cluster.gauges(extenders))
        findings += [calls.answered(_answers(gauges)), calls.spooled(_spools(gauges))]
    if not installed.has_own_scheduler:
        findings.append(calls.scheduler_flags(await seen(cluster.scheduler_pods())))
    return findings
