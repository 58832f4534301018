import socket
import subprocess
import sys
from itertools import cycle

import pytest

from joulie_bus.runtime import ports
from joulie_bus.runtime.ports import free_port, take

TAKES = """
import sys
from joulie_bus.runtime.ports import take
print(take(int(sys.argv[1])), flush=True)
sys.stdin.read()
"""


def choose_among(monkeypatch: pytest.MonkeyPatch, *chosen: int) -> None:
    monkeypatch.setattr(ports, "_numbers", cycle(chosen))


def test_a_free_port_is_unused_and_returned_once() -> None:
    found = [free_port() for _ in range(500)]

    assert len(set(found)) == 500
    assert max(found) < 32_768, "from there on systems give them to connections that go out"


def test_the_claims_of_a_process_that_chooses_many_ports_are_bounded() -> None:
    first = free_port()
    assert not take(first)

    for _ in range(ports._KEPT):
        free_port()

    assert len(ports._claims) == ports._KEPT
    assert take(first)


def test_a_port_that_is_in_use_is_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free, other = free_port(), *(unclaimed() for _ in range(2))
    choose_among(monkeypatch, taken, free, other)
    with socket.create_server(("127.0.0.1", taken)):
        assert [free_port(), free_port()] == [free, other]

        choose_among(monkeypatch, taken)
        with pytest.raises(OSError, match="is in use"):
            free_port()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has names that processes claim")
def test_a_port_that_another_process_chose_is_passed_by_until_it_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen, free = unclaimed(), unclaimed()
    choose_among(monkeypatch, chosen, free)
    with subprocess.Popen(
        [sys.executable, "-c", TAKES, str(chosen)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"

        assert free_port() == free

        other.kill()
        other.wait()
    assert take(chosen)


def unclaimed() -> int:
    """A port that no process claims or listens on."""
    port = free_port()
    ports._claims.pop().close()
    return port
