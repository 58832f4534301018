"""A head that was parsed before is recognized, and nothing else is."""

import asyncio
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulie_bus.core.http_head import Head, HeadRule, RefusedHead, refusal_of
from joulie_bus.http import connection
from joulie_bus.http.byte_budget import ByteBudget
from joulie_bus.http.connection import Connection
from joulie_bus.http.exchange import Limits, Reply, Request
from joulie_bus.http.tally import EXTENDER

JSON = b"Content-Type: application/json"


class Written(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.bytes = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.bytes += bytes(data)

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True


class Server:
    """Says what it was asked."""

    is_draining = False

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008
        self.limits, self.tally = limits, EXTENDER
        self.budget = ByteBudget(limits.buffers)
        self.arriving: set[Connection] = set()
        self.connections: set[Connection] = set()
        self.asked: list[tuple[str, str, bytes]] = []

    def answer(self, request: Request) -> Reply:
        self.asked.append((request.method, request.path, bytes(request.body)))
        return Reply(200, repr(self.asked[-1]).encode())

    def in_next_turn(self, what: Callable[[], None]) -> None:
        what()

    def is_authenticated(self, transport: asyncio.Transport) -> bool:
        return True

    def refusal_of(self, head: Head, is_authenticated: bool) -> RefusedHead | None:
        return refusal_of(head, HeadRule())


def heard(server: Server, pieces: Sequence[bytes]) -> bytes:
    """What is written to a client that sends these, one after the other."""
    written = Written()
    client = Connection(server)
    client.connection_made(written)
    for piece in pieces:
        if piece and not written.is_closed:
            client.get_buffer(-1)[: len(piece)] = piece
            client.buffer_updated(len(piece))
    return written.bytes


def request(body: bytes, path: bytes = b"/filter", *more: bytes, length: bytes = b"") -> bytes:
    lines = (b"POST %b HTTP/1.1" % path, b"Host: localhost", JSON, *more)
    said = length or b"Content-Length: %d" % len(body)
    return b"\r\n".join((*lines, said, b"Accept: */*", b"", body))


HIDDEN = (b"X: Content-Length: 3", b"X: a,\r\n Content-Length: 3", b"Expect: 100-continue")
requests = st.builds(
    request,
    st.sampled_from([b"", b"abc", b"{}" * 40, b"a\r\n\r\nb", request(b"inner")]),
    st.sampled_from([b"/filter", b"/prioritize?x=1"]),
    st.sampled_from([b"Accept-Encoding: gzip", b"Connection: keep-alive", *HIDDEN]),
) | st.sampled_from(
    [
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        request(b"", b"/x", length=b"Transfer-Encoding: chunked") + b"2\r\nok\r\n0\r\n\r\n",
        request(b"abc", b"/filter", length=b"content-length: 3"),
        request(b"abc", b"/filter", length=b"Content-Length: 003"),
        request(b"abc", b"/filter", length=b"Content-Length: 2"),
        request(b"abc", b"/filter", length=b"Content-Length: 3\r\nContent-Length: 3"),
        request(b"abc", b"/filter", b"Connection: close"),
    ]
)


class Said(NamedTuple):
    """A request, perhaps in one piece with the one before, perhaps in pieces itself."""

    sent: bytes
    is_glued: bool
    cuts: list[int]


def pieces_of(story: list[Said]) -> list[bytes]:
    pieces: list[bytes] = []
    for sent, is_glued, cuts in story:
        ends = sorted({place % (len(sent) + 1) for place in cuts} | {len(sent)})
        first, *others = [
            sent[start:end] for start, end in zip([0, *ends], ends, strict=False) if end > start
        ]
        glued = pieces.pop() if pieces and is_glued else b""
        pieces += [glued + first, *others]
    return pieces


said = st.builds(
    Said, requests, st.booleans(), st.just([]) | st.lists(st.integers(0, 999), max_size=2)
)


def same_either_way(pieces: Sequence[bytes]) -> bool:
    remembering, parsing = Server(), Server()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(connection, "KNOWN_HEADS", 0)
        expected = heard(parsing, pieces)
    return heard(remembering, pieces) == expected and remembering.asked == parsing.asked


@pytest.mark.slow
@settings(deadline=None, max_examples=400)
@given(st.lists(said, max_size=9).map(pieces_of))
def test_a_known_head_reads_requests_as_the_parser_does(pieces: list[bytes]) -> None:
    assert same_either_way(pieces)


def test_a_length_within_another_line_is_not_the_length_of_the_body() -> None:
    """A request of another client behind it would become its body."""
    behind = request(b"inner")
    harmless = request(b"abc", b"/filter", b"X: Content-Length: 3")
    greedy = request(b"abc", b"/filter", b"X: Content-Length: %d" % (3 + len(behind)))

    assert same_either_way([harmless, greedy + behind])


def test_a_body_that_looks_like_a_request_is_a_body() -> None:
    inner = request(b"abc")
    outer = request(inner)

    assert same_either_way([inner, outer.removesuffix(inner), inner, inner])


def test_two_requests_in_one_piece_are_two_each_time() -> None:
    assert same_either_way([request(b"abc") * 2] * 2)


def parsed(monkeypatch: pytest.MonkeyPatch, pieces: Sequence[bytes], limits: Limits) -> list[int]:
    """Which of these pieces had to be parsed."""
    fed: list[int] = []
    feed = Connection._feed

    def counted(client: Connection, data: memoryview) -> None:
        fed.append(pieces.index(bytes(data)))
        feed(client, data)

    monkeypatch.setattr(Connection, "_feed", counted)
    heard(Server(limits), pieces)
    return fed


def test_a_head_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [request(b"%d" % number, path) for number in range(9) for path in (b"/a", b"/b")]

    assert parsed(monkeypatch, both, Limits()) == [0, 1]


def test_a_body_beyond_the_limit_is_refused_though_its_head_is_known() -> None:
    server = Server(Limits(body=100))
    replies = heard(server, [request(b"x" * 9), request(b"x" * 99), request(b"x" * 101)])

    assert [len(body) for _, _, body in server.asked] == [9, 99]
    assert b"HTTP/1.1 413" in replies


@pytest.mark.slow
def test_a_body_in_tiny_pieces_takes_no_more_than_its_bytes() -> None:
    whole = request(b"x" * 200_000)
    pieces = [whole[at : at + 2] for at in range(0, len(whole), 2)]

    tracemalloc.start()
    heard(Server(), pieces)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 2_000_000
