"""The rules for the head of a request, one by one."""

import pytest

from joulie_bus.core.http_head import (
    Field,
    Head,
    HeadRule,
    canonical,
    host_name,
    host_names,
    is_loopback,
    refusal_of,
)

RULE = HeadRule(frozenset({"extender.joulie-system.svc", "10.9.0.1"}), frozenset({"/healthz"}))
HOST: Field = (b"Host", b"localhost:9876")
JSON: Field = (b"Content-Type", b"application/json")


LENGTH: Field = (b"Content-Length", b"20")


def refused(*fields: Field, method: str = "POST", path: str = "/filter") -> tuple[int, str]:
    found = refusal_of(Head(method, path, (*fields, LENGTH), "10.1.2.3"), RULE)
    return (0, "") if found is None else (found.status, found.reason)


FINE = (0, "")


@pytest.mark.parametrize(
    "host",
    [
        b"localhost",
        b"LocalHost.:9876",
        b"127.0.0.1:9876",
        b"127.8.9.1",
        b"[::1]:9876",
        b"10.1.2.3:9876",  # the address that the client connected to: a pod's own
        b"10.9.0.1:9876",
        b"Extender.joulie-system.SVC:9876",
        b" localhost ",
    ],
)
def test_own_names_are_answered(host: bytes) -> None:
    assert refused((b"host", host), JSON) == FINE


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"evil.example", 421),
        (b"127.0.0.1.evil.example", 421),
        (b"localhost.evil.example", 421),
        (b"extender.joulie-system.svc.evil.example", 421),
        (b"10.1.2.4", 421),
        (b"0.0.0.0", 421),
        (b"", 400),
        (b"localhost, evil.example", 400),
        (b"user@localhost", 400),
        (b"localhost/x", 400),
        (b"localhost:port", 400),
        (b"[::1", 400),
        (b"\xe9vil", 400),
    ],
)
def test_other_names_are_refused(host: bytes, status: int) -> None:
    assert refused((b"host", host), JSON) == (status, "host")


def test_no_host_and_two_hosts_are_refused() -> None:
    assert refused(JSON) == (400, "host")
    assert refused(HOST, (b"HOST", b"localhost"), JSON) == (400, "host")


def test_a_probe_is_answered_under_any_name_and_without_one() -> None:
    asked = [refused(*fields, method="GET", path="/healthz") for fields in ((), ((b"host", b"x"),))]

    assert asked == [FINE, FINE]


@pytest.mark.parametrize("origin", [b"https://evil.example", b"null", b"", b"http://localhost"])
@pytest.mark.parametrize("path", ["/filter", "/healthz"])
def test_an_origin_is_refused_on_every_path(origin: bytes, path: str) -> None:
    assert refused(HOST, JSON, (b"oRIGIN", origin), path=path) == (403, "origin")


@pytest.mark.parametrize(
    "media", [b"application/json", b"Application/JSON; charset=utf-8", b" application/json ;x=y"]
)
def test_json_is_read(media: bytes) -> None:
    assert refused(HOST, (b"content-type", media)) == FINE


@pytest.mark.parametrize(
    "media",
    [
        b"text/plain",
        b"text/plain; application/json",
        b"application/x-www-form-urlencoded",
        b"multipart/form-data; boundary=application/json",
        b"application/jsonp",
        b"",
    ],
)
def test_what_a_form_can_send_is_refused(media: bytes) -> None:
    assert refused(HOST, (b"content-type", media)) == (415, "content_type")


def test_a_post_without_a_type_or_with_two_is_refused() -> None:
    assert refused(HOST) == (415, "content_type")
    assert refused(HOST, JSON, (b"Content-Type", b"text/plain")) == (415, "content_type")


def test_what_has_no_body_needs_no_type() -> None:
    assert refused(HOST, method="GET") == FINE
    empty: Field = (b"Content-Length", b"0")
    assert refusal_of(Head("POST", "/filter", (HOST, empty)), RULE) is None
    assert refusal_of(Head("POST", "/filter", (HOST,)), RULE) is None


def test_a_body_without_a_length_is_refused() -> None:
    chunked: Field = (b"transfer-encoding", b"chunked")

    assert refused(HOST, JSON, chunked) == (411, "transfer_encoding")


@pytest.mark.parametrize(
    ("header", "name"),
    [("[::1]:9870", "::1"), ("[::1", None), ("a:1", "a"), ("", None), ("A.b.", "a.b")],
)
def test_the_name_in_a_host_header(header: str, name: str | None) -> None:
    assert host_name(header) == name


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "LOCALHOST"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "localhost.evil", "", "127.1"])
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_one_spelling_per_name() -> None:
    assert canonical("[FD00:0::7]") == canonical("fd00::7%eth0") == "fd00::7"
    assert host_names(" A.example., 10.0.0.1 ,fd00:0::7,") == ("a.example", "10.0.0.1", "fd00::7")


@pytest.mark.parametrize("text", ["a b", "http://a", "a:80", "-a", "a/b", "*"])
def test_what_is_no_name_of_a_host_is_a_mistake(text: str) -> None:
    with pytest.raises(ValueError, match="without a port"):
        host_names(text)
