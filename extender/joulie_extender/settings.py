"""The extender's settings: the seeds' names where they have one."""

from dataclasses import dataclass
from pathlib import Path

from joulie_bus.settings import (
    HostPort,
    address,
    boolean,
    choice,
    duration,
    file,
    integer,
    number,
    setting,
    some_time,
    token,
)
from joulie_extender.app import Conduct
from joulie_extender.exchange import Limits
from joulie_extender.scoring import Weights
from joulie_extender.shipping import Durability
from joulie_extender.tls import Certificates
from joulie_projections.power import Coefficients


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    addr: HostPort = setting(
        address, "EXTENDER_ADDR", "127.0.0.1:9876", "Where kube-scheduler reaches the extender"
    )
    replica: str = setting(
        token, "EXTENDER_REPLICA", "extender-0", "Name of this replica in the decision log"
    )
    fails: str = setting(
        choice("open", "closed"),
        "EXTENDER_FAILS",
        "open",
        "What is answered when there is no answer: all nodes pass, or none",
    )
    deadline_s: float = setting(
        some_time,
        "EXTENDER_DEADLINE",
        "100ms",
        "Age of a request at which it gets that answer instead of a thought",
    )
    decision_durability: str = setting(
        choice(*Durability),
        "DECISION_DURABILITY",
        "async",
        "What a reply waits for, beside the local disk: nothing; the broker, until the deadline; "
        "the broker, or there is no answer",
    )
    body_limit: int = setting(
        integer(1024), "EXTENDER_BODY_LIMIT", "67108864", "Largest request body, in bytes"
    )
    head_s: float = setting(
        some_time, "EXTENDER_HEAD_TIMEOUT", "10s", "Time that the head of a request may take"
    )
    body_s: float = setting(
        some_time,
        "EXTENDER_BODY_TIMEOUT",
        "30s",
        "Time that a body may take, and the taking of a reply",
    )
    keep_alive_s: float = setting(
        some_time,
        "EXTENDER_KEEP_ALIVE",
        "120s",
        "Time that an idle connection is kept; kube-scheduler's own is 90s",
    )
    drain_s: float = setting(
        duration, "EXTENDER_DRAIN", "3s", "Time to see clients out when told to end"
    )
    tls_cert: str = setting(
        file, "EXTENDER_TLS_CERT_FILE", "", "Our certificate (PEM); given, TLS is spoken"
    )
    tls_key: str = setting(
        file, "EXTENDER_TLS_KEY_FILE", "", "The key (PEM, no passphrase) of that certificate"
    )
    tls_client_ca: str = setting(
        file,
        "EXTENDER_TLS_CLIENT_CA_FILE",
        "",
        "CA (PEM) of the clients; given, only those with a certificate of it are answered",
    )

    def contradictions(self) -> list[str]:
        found = []
        if bool(self.tls_cert) != bool(self.tls_key):
            found.append(
                "EXTENDER_TLS_CERT_FILE and EXTENDER_TLS_KEY_FILE: one is of no use without the "
                "other"
            )
        if self.tls_client_ca and not self.tls_cert:
            found.append("EXTENDER_TLS_CLIENT_CA_FILE without EXTENDER_TLS_CERT_FILE: no TLS")
        return found

    def limits(self) -> Limits:
        return Limits(
            body=self.body_limit,
            head_s=self.head_s,
            body_s=self.body_s,
            keep_alive_s=self.keep_alive_s,
            drain_s=self.drain_s,
        )

    def certificates(self) -> Certificates | None:
        if not self.tls_cert:
            return None
        client_ca = Path(self.tls_client_ca) if self.tls_client_ca else None
        return Certificates(Path(self.tls_cert), Path(self.tls_key), client_ca)

    def durability(self) -> Durability:
        return Durability(self.decision_durability)

    def conduct(self) -> Conduct:
        return Conduct(
            fails="closed" if self.fails == "closed" else "open",
            deadline_s=self.deadline_s,
            is_strict=self.durability() is Durability.STRICT,
        )


@dataclass(frozen=True, kw_only=True)
class ScoringSettings:
    staleness_s: float = setting(
        some_time,
        "TWIN_STALENESS_THRESHOLD",
        "5m",
        "Age at which a twin or a reading is not used any more",
    )
    cpu: float = setting(
        number(0, 2),
        "MARGINAL_CPU_UTIL_COEFF",
        "0.7",
        "Share of the asked-for CPU power that a pod draws",
    )
    gpu_standard: float = setting(
        number(0, 2), "MARGINAL_GPU_UTIL_COEFF_STANDARD", "0.65", "The same for GPUs, standard pods"
    )
    gpu_performance: float = setting(
        number(0, 2),
        "MARGINAL_GPU_UTIL_COEFF_PERFORMANCE",
        "0.85",
        "The same for GPUs, performance pods",
    )
    memory_factor: bool = setting(
        boolean,
        "MARGINAL_MEMORY_FACTOR",
        "true",
        "Whether memory requests raise the CPU estimate, by 1 % per GiB up to 30 %",
    )
    headroom: float = setting(
        number(0, 10), "SCORE_HEADROOM_WEIGHT", "0.7", "Weight of the headroom"
    )
    cooling: float = setting(
        number(0, 10), "SCORE_COOLING_WEIGHT", "0.15", "Weight of the cooling reserve"
    )
    trend_limit: float = setting(
        number(0, 100), "SCORE_TREND_LIMIT", "25", "Most points that a trend gives or takes"
    )
    trend_scale: float = setting(
        number(0.01),
        "SCORE_TREND_SCALE",
        "6",
        "W/min of a node's trend per point, while the cluster is steady",
    )
    trend_burst_scale: float = setting(
        number(0.01), "SCORE_TREND_BURST_SCALE", "2", "The same during a burst"
    )
    burst: float = setting(
        number(0),
        "SCORE_BURST_THRESHOLD",
        "500",
        "W/min of the cluster's trend from which on it is a burst",
    )
    eco_bonus: float = setting(
        number(0, 100), "SCORE_ECO_BONUS", "10", "Points for a standard pod on an eco node"
    )
    pressure: float = setting(
        number(0, 10),
        "SCORE_PRESSURE_WEIGHT",
        "0.3",
        "Weight of the pressure on performance nodes, for standard pods",
    )
    draining_penalty: float = setting(
        number(0, 100),
        "DRAINING_PENALTY",
        "20",
        "Points that a draining node costs a standard pod; 0 is the original formula",
    )
    filter_stale: str = setting(
        choice("label", "closed", "twin"),
        "FILTER_STALE",
        "label",
        "What the filter goes by when a twin is stale: the node's label, nothing (refused), or the "
        "twin all the same",
    )
    neutral: float = setting(
        number(0, 100), "SCORE_NEUTRAL", "50", "Score of a node of which nothing fresh is known"
    )
    score_range: str = setting(
        choice("100", "10"), "SCORE_RANGE", "100", "Highest score that is answered"
    )

    def weights(self) -> Weights:
        return Weights(
            headroom=self.headroom,
            cooling=self.cooling,
            trend_limit=self.trend_limit,
            trend_scale=self.trend_scale,
            trend_burst_scale=self.trend_burst_scale,
            burst_w_per_min=self.burst,
            eco_bonus=self.eco_bonus,
            pressure=self.pressure,
            draining_penalty=self.draining_penalty,
            neutral=self.neutral,
            staleness_s=self.staleness_s,
            score_range=float(self.score_range),
            filter_stale=self.filter_stale,
            coefficients=Coefficients(
                self.cpu, self.gpu_standard, self.gpu_performance, self.memory_factor
            ),
        )
