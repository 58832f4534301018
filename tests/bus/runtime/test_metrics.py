import contextlib
import socket
import threading
import time
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from joulie_bus.errors import PortTaken
from joulie_bus.runtime import metrics, metrics_server
from joulie_bus.runtime.ports import free_port

METRICS = [found for found in vars(metrics).values() if isinstance(found, MetricWrapperBase)]
# What a label may say is one of a few words of our own; nothing that a user can write into.
BOUNDED = {
    *("kind", "fate", "reason", "verb", "outcome", "policy", "route", "what", "how", "stream"),
    *("order", "result", "task", "covers", "state", "of"),
    "server",  # of the broker, whose few names its own configuration has
    # The ledger names 50 namespaces at most, and the currencies of the operator's own prices; a
    # witness and a place of heads are named by settings.
    *("namespace", "currency", "witness", "place"),
    "model",  # of cards: the extender shows 50 at most
    "feed",  # of power targets: the operator shows 50 at most
    "component",  # as the table of metrics names them
    *("card", "by"),  # the cards of the node of an agent, and what limited one
}
WITHOUT_A_VIEW = {
    "projector",
    "archive",
    "ledger",
    "admission",
    "agent",
    "agent-caps",
    "callout",
    "signer",
}


def test_every_label_is_one_of_ours() -> None:
    labels = {label for metric in METRICS for label in metric._labelnames}

    assert labels <= BOUNDED


def test_every_metric_is_named_after_us_and_says_what_it_is() -> None:
    assert [m._name for m in METRICS if not m._name.startswith("joulie_")] == []
    assert [m._name for m in METRICS if len(m._documentation) < 10] == []


def test_prometheus_can_read_them() -> None:
    port = free_port()
    metrics.serve("127.0.0.1", port, "projector")
    metrics.POSITION.set(4812)

    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()

    assert "joulie_position 4812.0" in text


@pytest.mark.parametrize("part", metrics.SHOWN_BY)
def test_a_process_shows_what_it_counts_and_nothing_of_others(part: str) -> None:
    shown = {family.name for family in metrics.shown_by(part).collect()}

    assert ("joulie_answers" in shown) == (part == "extender")
    assert ("joulie_commit_seconds" in shown) == (part == "projector")
    assert ("joulie_archive_position" in shown) == (part == "archive")
    assert ("joulie_view_age_seconds" in shown) == (part not in WITHOUT_A_VIEW)
    assert "joulie_broker_errors" in shown


def test_every_metric_is_shown_by_some_process() -> None:
    shown = {family.name for family in metrics.shown_by(*metrics.SHOWN_BY).collect()}

    assert {metric._name for metric in METRICS} == shown


def asked(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_a_process_reports_its_health_and_the_reason() -> None:
    port = free_port()
    metrics.serve("127.0.0.1", port, "projector", lambda: "", lambda: "waiting for the broker")

    assert asked(port, "/healthz") == (200, "ok\n")
    assert asked(port, "/readyz") == (503, "waiting for the broker\n")


def test_the_error_of_a_taken_port_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"Nothing can listen on 127.0.0.1:{port}"):
            metrics.serve("127.0.0.1", port, "projector")


def raw(port: int, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 20) as client:
        client.sendall(sent)
        return b"".join(iter(lambda: client.recv(4096), b""))


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "a, localhost"])
def test_on_loopback_a_name_of_another_site_reads_no_metrics(host: str) -> None:
    port = free_port()
    metrics.serve("127.0.0.1", port, "projector")

    heard = raw(port, f"GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())

    assert heard.split()[1] in (b"400", b"421")
    assert b"joulie_" not in heard


@pytest.mark.slow
def test_clients_that_send_nothing_are_cut_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_S", 1.0)
    monkeypatch.setattr(metrics_server, "THREADS", 4)
    port = free_port()
    metrics.serve("127.0.0.1", port, "projector")
    threads = threading.active_count()

    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 20))
            for _ in range(20)
        ]
        for client in silent:
            client.sendall(b"GET /me")
        time.sleep(0.3)
        assert threading.active_count() - threads <= 2 * 4  # a timer for each
        for client in silent:
            with contextlib.suppress(ConnectionError):
                assert client.recv(100) == b""

    answer: object = None
    deadline = time.monotonic() + 60
    while answer is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # the last of them may still hold its thread
            answer = asked(port, "/healthz")
    assert answer == (200, "ok\n")


def test_a_gauge_without_a_value_is_not_a_zero() -> None:
    registry = CollectorRegistry()
    plain = metrics.Gauge("joulie_plain", "A gauge without labels", registry=registry)
    labelled = metrics.Gauge("joulie_labelled", "One with a label", ["of"], registry=registry)
    assert samples(registry) == []

    plain.set(0)
    labelled.labels(of="a").inc()
    assert samples(registry) == ["joulie_plain", "joulie_labelled"]

    plain.forget()
    labelled.forget()
    assert samples(registry) == []


def samples(registry: CollectorRegistry) -> list[str]:
    return [sample.name for family in registry.collect() for sample in family.samples]


def test_an_age_that_is_not_known_is_not_exported() -> None:
    registry = CollectorRegistry()
    age = metrics.ScrapedGauge("joulie_age", "An age", registry=registry)
    known: list[float | None] = [None, 3.0]

    with age.computed_by(lambda: known.pop()):
        assert registry.get_sample_value("joulie_age") == 3.0
        assert samples(registry) == []
    assert samples(registry) == []


def test_values_by_label_are_computed_at_each_scrape_and_gone_with_their_source() -> None:
    free: dict[tuple[str, ...], float] = {("H100", "all"): 3.0, ("H100", "unusable"): 1.5}
    with metrics.FREE_GPUS.computed_by(lambda: free):
        free["H100", "all"] = 2.0
        found = shown_values("joulie_free_gpus")
    assert found == [
        ({"model": "H100", "of": "all"}, 2.0),
        ({"model": "H100", "of": "unusable"}, 1.5),
    ]
    assert shown_values("joulie_free_gpus") == []


def shown_values(name: str) -> list[tuple[dict[str, str], float]]:
    families = metrics.shown_by("extender").collect()
    return [
        (dict(sample.labels), sample.value)
        for family in families
        if family.name == name
        for sample in family.samples
    ]


@pytest.mark.parametrize(
    ("part", "age"),
    [("projector", "joulie_lag_seconds"), ("extender", "joulie_view_behind_seconds")],
)
def test_the_position_is_read_after_the_age_that_stands_beside_it(part: str, age: str) -> None:
    """A component without CPU may move on between the two; the age must not be of a later one."""
    names = [family.name for family in metrics.shown_by(part).collect()]

    assert names.index(age) < names.index("joulie_position")
