"""Metrics of all processes. Labels are bounded by construction, never user text; only the ledger
names namespaces, and no more than it names in `joulie_audit.ledger.energy_metrics`.

Each process exports only its own metrics: a zero for the metric of another process would suggest
that it works.
"""

import contextlib
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    make_wsgi_app,
)
from prometheus_client import Gauge as LibraryGauge
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from joulie_bus.errors import PortTaken
from joulie_bus.runtime.metrics_server import listener
from joulie_bus.runtime.system_errors import reason_of

# Creation times would double the output, and Prometheus does not need them.
disable_created_metrics()  # type: ignore[no-untyped-call]


def _group() -> CollectorRegistry:
    """The metrics of one part; a process exports several parts."""
    return CollectorRegistry(auto_describe=True)


COMMON, LOG, VIEW = (_group() for _ in range(3))
PROJECTOR, ARCHIVE, LEDGER, SPOOL, EXTENDER, OPERATOR, CONSOLE, ADMISSION, AGENT = (
    _group() for _ in range(9)
)
SHOWN_BY: dict[str, tuple[CollectorRegistry, ...]] = {
    "projector": (COMMON, LOG, PROJECTOR),
    "archive": (COMMON, ARCHIVE),
    "ledger": (COMMON, LOG, LEDGER),
    "operator": (COMMON, LOG, VIEW, OPERATOR),
    "extender": (COMMON, LOG, VIEW, SPOOL, EXTENDER),
    "shadow": (COMMON, LOG, VIEW, SPOOL),
    "console": (COMMON, LOG, VIEW, CONSOLE),
    "simulator": (COMMON, LOG, VIEW),
    "admission": (COMMON, ADMISSION),
    "callout": (COMMON,),
    "signer": (COMMON,),
    "agent": (COMMON, AGENT),
    "agent-caps": (COMMON, AGENT),
}


class Gauge(LibraryGauge):
    """Exports no sample before its first value and after `forget`: a 0 would be a measurement."""

    _is_known = False

    def set(self, value: float) -> None:
        super().set(value)
        self._is_known = True

    def inc(self, amount: float = 1) -> None:
        super().inc(amount)
        self._is_known = True

    def forget(self) -> None:
        """The value is not known from now on; of a gauge with labels, none of them is."""
        self._is_known = False
        if self._labelnames and not self._labelvalues:
            self.clear()

    def _child_samples(self) -> Iterable[Sample]:
        return super()._child_samples() if self._is_known else ()


class ScrapedGauge(Gauge):
    """A value without labels, computed at each scrape within `computed_by`, and exported only if it
    is known.

    A process whose event loop is stuck still answers scrapes: an age that the loop had set would
    stay young for ever.
    """

    _source: Callable[[], float | None] | None = None

    @contextlib.contextmanager
    def computed_by(self, value: Callable[[], float | None]) -> Generator[None, None, None]:
        self._source = value
        try:
            yield
        finally:
            if self._source is value:
                self._source = None

    def _child_samples(self) -> Iterable[Sample]:
        if self._source is None:
            return super()._child_samples()
        value = self._source()
        return () if value is None else (Sample("", {}, value, None, None),)


class ComputedGauge(Gauge):
    """Values by their labels, computed at each scrape within `computed_by`."""

    _source: Callable[[], Mapping[tuple[str, ...], float]] | None = None

    @contextlib.contextmanager
    def computed_by(
        self, values: Callable[[], Mapping[tuple[str, ...], float]]
    ) -> Generator[None, None, None]:
        self._source = values
        try:
            yield
        finally:
            self._source = None

    def collect(self) -> Iterable[Metric]:
        self.clear()
        for labels, value in (self._source() if self._source else {}).items():
            self.labels(*labels).set(value)
        return super().collect()


COMPONENT = Gauge(
    "joulie_component_info", "1: this component answers", ["component"], registry=COMMON
)
BROKER_ERRORS = Counter(
    "joulie_broker_errors_total",
    "Errors that the broker reported outside of a call",
    ["kind"],
    registry=COMMON,
)
LOG_LINES_LOST = Counter(
    "joulie_log_lines_lost_total",
    "Log lines that could not be written to standard error",
    registry=COMMON,
)
TASK_FAILURES = Counter(
    "joulie_task_failures_total",
    "Failures of vital tasks, by task (docs/faults.md#tasks)",
    ["task"],
    registry=COMMON,
)
RESENT = Counter(
    "joulie_publish_resent_total",
    "Messages sent again without an acknowledgement in time",
    registry=COMMON,
)
PUBLISH_REFUSED = Counter(
    "joulie_publish_refused_total",
    "Attempts to publish that the broker refused, by kind of message",
    ["what"],
    registry=COMMON,
)
POSITION = Gauge(
    "joulie_position", "Position of the last event that was committed or seen", registry=LOG
)
LAG_EVENTS = Gauge(
    "joulie_lag_events", "Events stored in the streams and not yet committed", registry=PROJECTOR
)
LAG_SECONDS = ScrapedGauge(
    "joulie_lag_seconds",
    "How far the committed state is behind the streams; absent while the projector does not know",
    registry=PROJECTOR,
)
BROKER_SILENT_SECONDS = ScrapedGauge(
    "joulie_broker_silent_seconds",
    "Time since a majority of the broker's replicas confirmed the ends of the streams of facts, "
    "while the projector had CPU",
    registry=PROJECTOR,
)
BROKER_MISSING = Gauge(
    "joulie_broker_missing_messages",
    "Messages that only other servers of the broker hold, at least; absent for complete copies",
    ["server", "stream"],
    registry=PROJECTOR,
)
COMMIT_SECONDS = Histogram(
    "joulie_commit_seconds",
    "One projector transaction",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5),
    registry=PROJECTOR,
)
EVENTS = Counter(
    "joulie_events_total",
    "Events given a position, by result",
    ["fate"],
    registry=PROJECTOR,
)
REFUSED = Counter(
    "joulie_events_refused_total",
    "Events from a sender that may not write them, and entries of JOULIE_DEC that are no decision",
    ["stream"],
    registry=PROJECTOR,
)
EPOCH = Gauge("joulie_epoch", "Number of projector takeovers", registry=PROJECTOR)
FENCED = Counter(
    "joulie_fenced_total", "Times this projector was superseded by another one", registry=PROJECTOR
)
GAPS = Counter("joulie_gaps_total", "Times a stream lacked the next message", registry=PROJECTOR)
PRODUCER_MISSING = Gauge(
    "joulie_producer_missing_events",
    "Events that producers numbered and that did not arrive",
    registry=PROJECTOR,
)
DATABASE_RETRIES = Counter(
    "joulie_database_retries_total",
    "Transactions that the database refused, and that were retried",
    registry=PROJECTOR,
)
SNAPSHOT_POSITION = Gauge(
    "joulie_snapshot_position", "Position of the newest snapshot", registry=PROJECTOR
)
HEAD_AGE_SECONDS = Gauge(
    "joulie_head_age_seconds",
    "Time since the end of the decision log was last signed, while it has grown",
    registry=PROJECTOR,
)
FOREIGN_ROWS = Counter(
    "joulie_foreign_rows_total",
    "Rows of the decision log, and records of its end, of other programs, put right",
    registry=PROJECTOR,
)
LOG_FORKED = Gauge(
    "joulie_log_forked",
    "1 while nothing is signed because the log contradicts a signed head, else 0",
    registry=PROJECTOR,
)
LOG_BEHIND_HEAD = Gauge(
    "joulie_log_behind_head",
    "1 while nothing is signed because a signed head is of a later entry, else 0",
    registry=PROJECTOR,
)
WITNESS_COSIGNED = Gauge(
    "joulie_witness_cosigned",
    "1 if the witness cosigned the newest checkpoint that it received, else 0",
    ["witness"],
    registry=PROJECTOR,
)
KEY_CHANGES = Counter(
    "joulie_key_changes_total",
    "Changes of the keys that sign the log: handovers and retirements",
    registry=PROJECTOR,
)
KEY_CHANGE_REFUSED = Gauge(
    "joulie_key_change_refused",
    "1 while a requested change of the signing key cannot be made, else 0",
    registry=PROJECTOR,
)
HEADS_KEPT = Gauge(
    "joulie_heads_kept",
    "1 if this place of HEADS_TO keeps all signed heads, else 0",
    ["place"],
    registry=PROJECTOR,
)
DECISIONS_WRITTEN = Counter(
    "joulie_decisions_written_total", "Entries appended to the decision log", registry=PROJECTOR
)
STREAM_BYTES = Gauge(
    "joulie_stream_bytes", "Bytes stored in each stream", ["stream"], registry=PROJECTOR
)
STREAM_MAX_BYTES = Gauge(
    "joulie_stream_max_bytes",
    "Size limit of each stream; absent without one",
    ["stream"],
    registry=PROJECTOR,
)
STREAM_DAYS_LEFT = Gauge(
    "joulie_stream_days_left",
    "Days until a stream refuses messages at the last day's growth; "
    "absent if it does not grow or drops old ones",
    ["stream"],
    registry=PROJECTOR,
)
STREAM_KEPT_SECONDS = Gauge(
    "joulie_stream_kept_seconds",
    "From the oldest message of each stream to the newest",
    ["stream"],
    registry=PROJECTOR,
)
BROKER_SERVER_LOST = Gauge(
    "joulie_broker_server_lost",
    "1 for a server of the broker that does not answer the leader of any stream, 0 for one that "
    "does; absent for a broker of one server",
    ["server"],
    registry=PROJECTOR,
)
DATABASE_BYTES = Gauge(
    "joulie_database_bytes", "Size of the database, of SQLite with its log", registry=PROJECTOR
)
DATA_FREE_BYTES = Gauge(
    "joulie_data_free_bytes",
    "Free space on the file system of the data directory",
    registry=PROJECTOR,
)
DATA_SIZE_BYTES = Gauge(
    "joulie_data_size_bytes", "Size of the file system of the data directory", registry=PROJECTOR
)
ENERGY = Counter(
    "joulie_energy_joules_total",
    "Energy of closed intervals: of pods above idle, idle, and estimated over gaps",
    ["kind"],
    registry=LEDGER,
)
NAMESPACE_ENERGY = Counter(
    "joulie_namespace_energy_joules_total",
    "Energy of closed hours since the start, by namespace: at most 50, then (others); "
    "(free) is what no pod occupies",
    ["namespace"],
    registry=LEDGER,
)
NAMESPACE_COST = Gauge(
    "joulie_namespace_cost",
    "Cost of the same energy, as far as it has a price",
    ["namespace", "currency"],
    registry=LEDGER,
)
NAMESPACE_CARBON = Counter(
    "joulie_namespace_carbon_grams_total",
    "Carbon of the same energy in gCO2e, as far as it has an intensity",
    ["namespace"],
    registry=LEDGER,
)
POWER_WATTS = Gauge(
    "joulie_power_watts",
    "Power of all nodes by their newest readings of the last minute",
    registry=LEDGER,
)
NODES = Gauge(
    "joulie_nodes",
    "Nodes with an object in Kubernetes, by power state: awake, asleep, waking",
    ["state"],
    registry=LEDGER,
)
NODES_UNREAD = Gauge(
    "joulie_nodes_unread", "Nodes without a reading in the last minute", registry=LEDGER
)
GPUS = Gauge(
    "joulie_gpus",
    "GPUs of all nodes, and those that running pods requested",
    ["of"],
    registry=LEDGER,
)
IDLE_HOLDERS = Gauge(
    "joulie_idle_gpu_holders",
    "GPU cards that pods have held for 15 minutes without work",
    registry=LEDGER,
)
IDLE_HOLDERS_WATTS = Gauge(
    "joulie_idle_gpu_holders_watts",
    "The power of these cards",
    registry=LEDGER,
)
LEDGER_LAG_EVENTS = Gauge(
    "joulie_ledger_lag_events",
    "Committed events that the ledger has not folded yet",
    registry=LEDGER,
)
LEDGER_LAG_SECONDS = Gauge(
    "joulie_ledger_lag_seconds",
    "Upper bound of the time since the ledger last held every committed fact",
    registry=LEDGER,
)
ARCHIVE_POSITION = Gauge(
    "joulie_archive_position", "Facts up to this position are archived", registry=ARCHIVE
)
ARCHIVE_AGE_SECONDS = Gauge(
    "joulie_archive_oldest_unarchived_seconds",
    "Age of the oldest fact that is not archived",
    registry=ARCHIVE,
)
ARCHIVE_TRIM_DUE_SECONDS = Gauge(
    "joulie_archive_trim_due_seconds",
    "Time since data that a trim may delete left ARCHIVE_KEEP; 0 if there is none",
    registry=ARCHIVE,
)
ARCHIVE_LOST = Counter(
    "joulie_archive_lost_messages_total",
    "Messages that left their stream before they were archived",
    registry=ARCHIVE,
)
ARCHIVE_FREE_BYTES = Gauge(
    "joulie_archive_free_bytes", "Free space of the archive's disk", registry=ARCHIVE
)
ARCHIVE_SIZE_BYTES = Gauge(
    "joulie_archive_size_bytes", "Size of the archive's disk", registry=ARCHIVE
)
ARCHIVE_FAILING = Gauge(
    "joulie_archive_failing", "1 while archiving or its checks fail, else 0", registry=ARCHIVE
)
LEFT_OUT = Counter(
    "joulie_left_out_total",
    "Objects and readings beyond the bounds, which were not published",
    ["what"],
    registry=OPERATOR,
)
DIGEST_MISMATCHES = Counter(
    "joulie_digest_mismatches_total",
    "Times the rows of a view differed from the projector's",
    registry=VIEW,
)
VIEW_AGE_SECONDS = ScrapedGauge(
    "joulie_view_age_seconds",
    "Time since the view last received a message of the projector; absent before the first",
    registry=VIEW,
)
VIEW_BEHIND_SECONDS = ScrapedGauge(
    "joulie_view_behind_seconds",
    "How far the content of the view is behind the streams; absent while that is not known, and "
    "while the view is paused",
    registry=VIEW,
)
VIEW_PAUSED = Gauge(
    "joulie_view_paused",
    "1 while the view is paused, because no client reads the console; else 0",
    registry=VIEW,
)
VIEW_RELOADS = Counter(
    "joulie_view_reloads_total",
    "Times a view was reloaded, by reason",
    ["reason"],
    registry=VIEW,
)
ANSWER_SECONDS = Histogram(
    "joulie_answer_seconds",
    "Time from the last byte of a webhook request to the last byte of its reply",
    ["verb"],
    buckets=(0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.05, 0.1, 0.5, 5),
    registry=EXTENDER,
)
ANSWERS = Counter(
    "joulie_answers_total", "Webhook answers, by outcome", ["verb", "outcome"], registry=EXTENDER
)
ANSWERS_REPEATED = Counter(
    "joulie_answers_repeated_total",
    "Repeated calls of one verb for a pod",
    ["verb"],
    registry=EXTENDER,
)
FALLBACKS = Counter(
    "joulie_fallbacks_total",
    "Answers that failed open or closed, by reason",
    ["verb", "reason"],
    registry=EXTENDER,
)
SCORES_SAVED = Counter(
    "joulie_scores_saved_total",
    "Neutral scores after a failure, and scores of hosts named more than once",
    registry=EXTENDER,
)
FREE_GPUS = ComputedGauge(
    "joulie_free_gpus",
    "Free GPUs by model: all, and those that no pod like earlier ones could use; none of a model "
    "whose cards pods request in units",
    ["model", "of"],
    registry=EXTENDER,
)
CONNECTIONS = Gauge("joulie_connections", "Open connections to the extender", registry=EXTENDER)
REQUESTS_REFUSED = Counter(
    "joulie_requests_refused_total",
    "Refused requests and closed connections, by reason",
    ["reason"],
    registry=EXTENDER,
)
SPOOLED = ScrapedGauge(
    "joulie_decision_spool_events",
    "Entries of the decision log on the local disk that the broker does not have",
    registry=SPOOL,
)
SPOOL_AGE_SECONDS = ScrapedGauge(
    "joulie_decision_spool_seconds", "The age of the oldest of them; 0 without one", registry=SPOOL
)
DECISIONS_SPOOLED = Counter(
    "joulie_decisions_spooled_total", "Decisions written to the local spool", registry=SPOOL
)
DECISIONS_UNCHANGED = Counter(
    "joulie_decisions_unchanged_total",
    "Repeated answers about members of a group, not written again",
    registry=SPOOL,
)
DECISIONS_SHIPPED = Counter(
    "joulie_decisions_shipped_total", "Decisions that the broker has stored", registry=SPOOL
)
DECISIONS_UNACKNOWLEDGED = Counter(
    "joulie_decisions_unacknowledged_total",
    "Decisions that the broker had not stored by the deadline",
    registry=SPOOL,
)
DECISIONS_DROPPED = Counter(
    "joulie_decisions_dropped_total",
    "Decisions answered but not recorded: disk full, spool damaged, or too large",
    registry=SPOOL,
)
HASHES_WAITING = ScrapedGauge(
    "joulie_promised_entries",
    "Published entries that no signed head of the log contains yet, as far as the replica knows",
    registry=SPOOL,
)
HASHES_LOST = Counter(
    "joulie_promise_hashes_lost_total",
    "Hashes of published entries that could not be kept: disk full",
    registry=SPOOL,
)
PROMISES_UNCHECKED = Counter(
    "joulie_promises_unchecked_total",
    "Published entries that were trimmed before their replica could look for them",
    registry=SPOOL,
)
ANSWERS_MISSING = ScrapedGauge(
    "joulie_answers_missing",
    "Published entries that the signed log lacks, or has with another content: "
    "`joulie prove --missing`",
    registry=SPOOL,
)
UNKNOWN_CLASS = Counter(
    "joulie_unknown_workload_class_total",
    "Requests about pods with an unknown workload-class annotation",
    registry=EXTENDER,
)
BINDINGS = Counter(
    "joulie_bindings_total",
    "Bind calls, by outcome",
    ["outcome"],
    registry=EXTENDER,
)
BIND_SECONDS = Histogram(
    "joulie_bind_seconds",
    "Duration of one bind call",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5),
    registry=EXTENDER,
)
CLAIMS_TENDED = Counter(
    "joulie_claims_tended_total",
    "Reconciled claims: confirmed, made, or the reason of a release",
    ["what"],
    registry=EXTENDER,
)
ADMITTED = Counter(
    "joulie_admission_pods_total",
    "Pods in requests to the webhook",
    ["result"],
    registry=ADMISSION,
)
AGENT_POWER = Gauge(
    "joulie_agent_power_watts",
    "Newest measured power of the node, by what the meters cover: node, parts or cards",
    ["covers"],
    registry=AGENT,
)
AGENT_KEPT = Gauge(
    "joulie_agent_kept_readings",
    "Readings that wait for the broker",
    registry=AGENT,
)
AGENT_LIMITED = Gauge(
    "joulie_agent_card_limited_seconds",
    "Time for which power or heat slowed a card down since its driver was loaded",
    ["card", "by"],
    registry=AGENT,
)
AGENT_METERS = Gauge("joulie_agent_meters", "Meters that gave the newest power", registry=AGENT)
ADMISSION_CONNECTIONS = Gauge(
    "joulie_admission_connections", "Open connections to the webhook", registry=ADMISSION
)
ADMISSION_REFUSED = Counter(
    "joulie_admission_refused_total",
    "Refused requests and closed connections, by reason",
    ["reason"],
    registry=ADMISSION,
)
PLANS = Counter("joulie_plans_total", "Plans published", ["policy"], registry=OPERATOR)
PLANS_STOPPED = Gauge(
    "joulie_plans_stopped",
    "1 while planning is stopped for this reason, else 0",
    ["reason"],
    registry=OPERATOR,
)
PLAN_CPU_SECONDS = Histogram(
    "joulie_plan_cpu_seconds",
    "CPU time of one planning run",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5),
    registry=OPERATOR,
)
NODES_HELD = Gauge(
    "joulie_nodes_held",
    "Nodes whose planned transition is delayed",
    registry=OPERATOR,
)
NODES_REFUSING_CAPS = Gauge(
    "joulie_nodes_refusing_caps",
    "Nodes that refused their last caps",
    registry=OPERATOR,
)
POWER_TARGET = Gauge(
    "joulie_power_target_watts",
    "Power target in force, by feed; that of the cluster has no name",
    ["feed"],
    registry=OPERATOR,
)
POWER_DRAWN = Gauge(
    "joulie_power_drawn_watts",
    "Power of the nodes under a target in force, by feed",
    ["feed"],
    registry=OPERATOR,
)
CONTESTED_CARDS = Gauge(
    "joulie_contested_cards",
    "GPU cards that agents of several nodes list, which no new pod gets",
    registry=OPERATOR,
)
NODES_LOST = Gauge(
    "joulie_nodes_lost",
    "Nodes that did not wake up in time",
    registry=OPERATOR,
)
EVICTIONS = Counter(
    "joulie_evictions_total",
    "Evictions: evicted, refused by a budget, kept, or failed",
    ["outcome"],
    registry=OPERATOR,
)
RESIZES = Counter(
    "joulie_resizes_total",
    "Changes of the requests of pods that the API server accepted, and reasons why there are none",
    ["outcome"],
    registry=OPERATOR,
)
RESIZES_PENDING = Gauge(
    "joulie_resizes_pending",
    "Pods whose kubelet has not carried out a change of their requests",
    registry=OPERATOR,
)
POWER_SWITCHES = Counter(
    "joulie_power_switches_total",
    "Orders to switch nodes off or on, by order and outcome",
    ["order", "outcome"],
    registry=OPERATOR,
)
PODS_REFUSED_ON_SAMPLE = Gauge(
    "joulie_pods_refused_on_sample",
    "Pods that were refused on a sample of nodes while a fit node exists",
    registry=OPERATOR,
)
KUBE_WRITES = Counter(
    "joulie_kube_writes_total",
    "Writes to the Kubernetes API server, by kind and outcome",
    ["kind", "outcome"],
    registry=OPERATOR,
)
POD_EVENTS = Counter(
    "joulie_pod_events_total",
    "Kubernetes Events on placed pods: done, aggregated, skipped, or failed",
    ["outcome"],
    registry=OPERATOR,
)
KUBE_BEHIND = Gauge(
    "joulie_kube_objects_behind",
    "Objects in the cluster that differ from their desired state",
    registry=OPERATOR,
)
KUBE_WRITE_RATE = Gauge(
    "joulie_kube_write_rate",
    "Allowed writes per second to the Kubernetes API server, at most APPLY_RATE",
    registry=OPERATOR,
)
WATCH_LISTS = Counter(
    "joulie_watch_lists_total",
    "Full lists of a kind: at the start, and after a lost watch history",
    ["kind", "how"],  # as watch events, or in pages
    registry=OPERATOR,
)
WATCH_FAILURES = Counter(
    "joulie_watch_failures_total",
    "Lists and watches that ended in an error, by kind of object",
    ["kind"],
    registry=OPERATOR,
)
LEADING = Gauge(
    "joulie_operator_leading", "1 while this operator holds the lease", registry=OPERATOR
)
STREAM_LISTENERS = Gauge(
    "joulie_stream_listeners", "Listeners of the console's stream", registry=CONSOLE
)
STREAM_CUT = Counter(
    "joulie_stream_cut_total",
    "Listeners of the console's stream that were too slow and disconnected",
    registry=CONSOLE,
)
CONSOLE_REFUSED = Counter(
    "joulie_console_refused_total",
    "Refused requests and closed connections, by reason",
    ["reason"],
    registry=CONSOLE,
)
NOTIFICATIONS = Counter(
    "joulie_notifications_total",
    "Notifications to the webhook: sent or dropped",
    ["result"],
    registry=CONSOLE,
)
NOTIFICATIONS_WAITING = Gauge(
    "joulie_notifications_waiting", "Notifications that wait for the webhook", registry=CONSOLE
)
NOTIFY_FAILING = Gauge(
    "joulie_notify_failing",
    "1 if the webhook refused the last notification",
    registry=CONSOLE,
)
SPANS = Counter(
    "joulie_spans_total",
    "Spans of traces to the collector: sent or dropped",
    ["result"],
    registry=CONSOLE,
)
CONSOLE_SECONDS = Histogram(
    "joulie_console_seconds",
    "Duration of a response of the console's API, by route",
    ["route"],
    buckets=(0.001, 0.005, 0.02, 0.05, 0.2, 1, 5, 30),
    registry=CONSOLE,
)


Probe = Callable[[], str]  # the reason if not ready; empty if ready


def well() -> str:
    return ""


def shown_by(*parts: str) -> CollectorRegistry:
    """The position is read last: a later one than that of the ages makes no age too small."""
    registry = _group()
    groups = dict.fromkeys(group for part in parts for group in SHOWN_BY[part])
    for group in sorted(groups, key=lambda group: group is LOG):
        registry.register(group)
    return registry


def serve(host: str, port: int, part: str, alive: Probe = well, ready: Probe = well) -> None:
    """Serves Prometheus' text format, /healthz and /readyz from a thread until the process ends."""
    COMPONENT.labels(component=part).set(1)
    probes = {"/healthz": alive, "/readyz": ready}
    numbers = make_wsgi_app(shown_by(part))

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        probe = probes.get(environ["PATH_INFO"])
        if probe is None:
            body: Iterable[bytes] = numbers(environ, start)
            return body
        why = probe()
        status = "503 Service Unavailable" if why else "200 OK"
        start(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{why or 'ok'}\n".encode()]

    try:
        server = listener(host, port, answer)
    except OSError as error:
        raise PortTaken(f"{host}:{port}", reason_of(error)) from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
