"""The extender's settings. Names follow the reference implementations where they have one."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from joulie_bus.core.certificate_names import certificate_names
from joulie_bus.core.http_head import canonical_names, host_names, is_loopback
from joulie_bus.http.certificates import Certificates
from joulie_bus.http.exchange import Limits
from joulie_bus.runtime.settings import (
    HostPort,
    address,
    boolean,
    choice,
    file,
    setting,
    some_time,
    text,
    token,
)
from joulie_bus.streams.subjects import PROJECTOR
from joulie_extender.answering.fallback_policy import FallbackPolicy
from joulie_extender.binding.bind import BindTimeouts
from joulie_extender.catalogue.weights import ScoreSettings, Weights
from joulie_extender.decision_log.shipping import Durability
from joulie_extender.gpu.fit import GpuWeights
from joulie_extender.gpu.models import aliases_of
from joulie_extender.terms.packing import PackingSettings
from joulie_extender.terms.power import CoefficientSettings
from joulie_extender.terms.preferences import Preference, Preferences, Team, label_scores, teams_in
from joulie_projections.hardware.catalog import EMPTY, Catalog
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES

BODY_LIMIT = 64 * 1024**2  # bytes: several thousand nodes sent as whole objects
BUFFERS = 128 * 1024**2  # bytes of requests and unsent replies: two of the largest at once
CONNECTIONS = 256  # open at once; a kube-scheduler needs a handful
HEAD_S = 10.0  # for the head of a request, and for a TLS handshake
BODY_S = 30.0  # for a body, and for the taking of a reply
KEEP_ALIVE_S = 120.0  # longer than kube-scheduler's own 90 s, so that the client closes first
DRAIN_S = 3.0  # for clients to leave at shutdown
BIND_S = 3.0  # for a whole binding; less than the httpTimeout of kube-scheduler's block
CLAIM_S = 90  # of a pod that is not seen bound: far more than a binding may take


def replica(value: str) -> str:
    """letters, digits and dashes; not `projector`"""
    if value == PROJECTOR:
        raise ValueError("the projector writes outcomes under this name")
    return token(value)


def team_file(path: str) -> tuple[Team, ...]:
    """a TOML file of teams, each with the labels that it prefers; empty for none"""
    if not path:
        return ()
    try:
        return teams_in(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    REPLACED: ClassVar[Mapping[str, str]] = {
        "CACHE_TTL": "the extender follows the event log and caches no objects; "
        "TWIN_STALENESS_THRESHOLD bounds the age of a twin"
    }
    addr: HostPort = setting(
        address, "EXTENDER_ADDR", "127.0.0.1:9876", "Address that the extender listens on"
    )
    hosts: tuple[str, ...] = setting(
        host_names,
        "EXTENDER_HOSTS",
        "",
        "Names and addresses of the extender that clients send as Host, such as those of its "
        "Service; loopback names and the address that a client connected to are always answered",
    )
    allow_unauthenticated: bool = setting(
        boolean,
        "EXTENDER_ALLOW_UNAUTHENTICATED",
        "false",
        "Allow EXTENDER_ADDR beyond loopback without client certificates: any process that "
        "reaches it can then read scores and bind pods",
    )
    replica: str = setting(
        replica,
        "EXTENDER_REPLICA",
        "extender-0",
        "Name of this replica in the decision log, and of its spool. Each replica needs a name of "
        "its own, in Kubernetes that of its pod",
    )
    fails: str = setting(
        choice("open", "closed"),
        "EXTENDER_FAILS",
        "open",
        "Reply when no decision can be computed: open passes all nodes, closed passes none",
    )
    binds: str = setting(
        text,
        "EXTENDER_BINDS",
        "",
        "Credentials to create Bindings: a kubeconfig file; in-cluster for the service account; "
        "simulated without Kubernetes; empty if kube-scheduler creates them",
    )
    deadline_s: float = setting(
        some_time,
        "EXTENDER_DEADLINE",
        "100ms",
        "Age of a request after which the extender replies as EXTENDER_FAILS says, without "
        "computing",
    )
    decision_durability: str = setting(
        choice(*Durability),
        "DECISION_DURABILITY",
        "async",
        "When a reply is sent, after the local disk has the decision: at once (async); when the "
        "broker has it, or at the deadline (ack); only when the broker has it (strict)",
    )
    spool: str = setting(
        text,
        "EXTENDER_SPOOL",
        "",
        "Directory of decisions that the broker does not have yet; empty for the data directory. "
        "A directory in memory cannot delay a reply as a disk can",
    )
    drain_s: float = DRAIN_S
    tls_cert: str = setting(
        file, "EXTENDER_TLS_CERT_FILE", "", "Server certificate (PEM); enables TLS"
    )
    tls_key: str = setting(
        file, "EXTENDER_TLS_KEY_FILE", "", "Private key (PEM, no passphrase) of that certificate"
    )
    tls_client_ca: str = setting(
        file,
        "EXTENDER_TLS_CLIENT_CA_FILE",
        "",
        "Certificate authority (PEM) of clients; only clients with a certificate of it get replies",
    )
    tls_client_names: frozenset[str] = setting(
        certificate_names,
        "EXTENDER_TLS_CLIENT_NAMES",
        "",
        "Common names or DNS names in certificates of clients; only these clients get replies. "
        "Empty for all clients of the authority, which may have signed those of other programs",
    )

    def spool_in(self, data: Path) -> Path:
        return Path(self.spool) if self.spool else data

    def contradictions(self) -> list[str]:
        found = []
        if bool(self.tls_cert) != bool(self.tls_key):
            found.append(
                "EXTENDER_TLS_CERT_FILE and EXTENDER_TLS_KEY_FILE: one is of no use without the "
                "other"
            )
        if self.tls_client_ca and not self.tls_cert:
            found.append("EXTENDER_TLS_CLIENT_CA_FILE without EXTENDER_TLS_CERT_FILE: no TLS")
        if self.tls_client_names and not self.tls_client_ca:
            found.append("EXTENDER_TLS_CLIENT_NAMES without EXTENDER_TLS_CLIENT_CA_FILE: no TLS")
        if not (is_loopback(self.addr.host) or self.tls_client_ca or self.allow_unauthenticated):
            found.append(
                f"EXTENDER_ADDR={self.addr}: beyond loopback every process that reaches it could "
                "read scores and have pods bound; give EXTENDER_TLS_CERT_FILE, "
                "EXTENDER_TLS_KEY_FILE and EXTENDER_TLS_CLIENT_CA_FILE, or "
                "EXTENDER_ALLOW_UNAUTHENTICATED=true where the network keeps others out"
            )
        return found

    def own_names(self) -> frozenset[str]:
        return canonical_names([self.addr.host, *self.hosts])

    def limits(self) -> Limits:
        return Limits(
            body=BODY_LIMIT,
            buffers=BUFFERS,
            connections=CONNECTIONS,
            head_s=HEAD_S,
            body_s=BODY_S,
            keep_alive_s=KEEP_ALIVE_S,
            drain_s=self.drain_s,
        )

    def certificates(self) -> Certificates | None:
        if not self.tls_cert:
            return None
        client_ca = Path(self.tls_client_ca) if self.tls_client_ca else None
        cert, key = Path(self.tls_cert), Path(self.tls_key)
        return Certificates(cert, key, client_ca, self.tls_client_names)

    def bind_timeouts(self) -> BindTimeouts:
        return BindTimeouts(BIND_S, CLAIM_S)

    def durability(self) -> Durability:
        return Durability(self.decision_durability)

    def fallback_policy(self) -> FallbackPolicy:
        return FallbackPolicy(
            fails="closed" if self.fails == "closed" else "open",
            gpu_fails="closed",  # a pod on a node without its cards would fail to start
            deadline_s=self.deadline_s,
            is_strict=self.durability() is Durability.STRICT,
        )


@dataclass(frozen=True, kw_only=True)
class ScoringSettings(ScoreSettings, CoefficientSettings, PackingSettings):
    label_scores: tuple[Preference, ...] = setting(
        label_scores,
        "NODE_LABEL_SCORES",
        "",
        "Points, of 100, for nodes with a label, for all pods",
    )
    teams: tuple[Team, ...] = setting(
        team_file, "TEAM_PREFERENCES", "", "File with the labels that each team prefers"
    )

    def weights(
        self, catalog: Catalog = EMPTY, resources: tuple[str, ...] = GPU_RESOURCES
    ) -> Weights:
        same = {each.name: getattr(self, each.name) for each in fields(ScoreSettings)}
        same |= self.scaled() | self.of_gangs()
        return Weights(
            **same,
            coefficients=self.coefficients,
            preferences=Preferences(self.label_scores, self.teams),
            gpu=GpuWeights(
                self.gpu_binpack,
                aliases=aliases_of(catalog),
                packing=self.gpu_packing,
                resources=",".join(resources),
            ),
        )
