"""Three machines of one network: addresses on loopback, or network namespaces with links to cut."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Generator, Sequence
from pathlib import Path

COUNT = 3
_BRIDGE = "br0"
_NETWORK = "10.87.0"
_NAMES = Path("/run/netns")


class NoNetworkOfItsOwn(Exception):
    """Links are cut in a network of the test's own only."""


class Machines:
    """Machines 0, 1 and 2, each with its address. This is a network without links to cut."""

    def __init__(self, network: str) -> None:
        self.addresses = [f"{network}.{number + 1}" for number in range(COUNT)]

    def words(self, machine: int) -> Sequence[str]:
        """What a command begins with to run on the machine."""
        return ()

    def cut(self, machine: int, other: int) -> None:
        """Nothing arrives from the machine at the other one. The way back is another link."""
        raise NoNetworkOfItsOwn

    def join(self, machine: int, other: int) -> None:
        raise NoNetworkOfItsOwn


class Namespaces(Machines):
    """Each machine is a network namespace, and its link a route."""

    def words(self, machine: int) -> Sequence[str]:
        return ("ip", "netns", "exec", _name(machine))

    def cut(self, machine: int, other: int) -> None:
        self._route("replace", machine, other)

    def join(self, machine: int, other: int) -> None:
        self._route("delete", machine, other)

    def _route(self, verb: str, machine: int, other: int) -> None:
        _ip(f"-n {_name(machine)} route {verb} blackhole {self.addresses[other]}/32")


def on_loopback() -> Machines:
    """A network that no other test uses at the same time."""
    pid = os.getpid()
    return Machines(f"127.{64 + pid % 128}.{pid // 128 % 256}")


@contextlib.contextmanager
def in_namespaces() -> Generator[Machines, None, None]:
    """Machines on a bridge. Takes a network and mounts of the test's own (.ci/in-a-network)."""
    if {name for _, name in socket.if_nameindex()} != {"lo"}:
        raise NoNetworkOfItsOwn("run it with .ci/in-a-network")
    _NAMES.mkdir(exist_ok=True)  # of namespaces; in memory, so that a killed test leaves none
    subprocess.run(["mount", "-t", "tmpfs", "names", _NAMES], check=True)
    _ip("link set lo up")
    _ip(f"link add {_BRIDGE} type bridge")
    _ip(f"address add {_NETWORK}.254/24 dev {_BRIDGE}")
    _ip(f"link set {_BRIDGE} up")
    made = Namespaces(_NETWORK)
    for machine, address in enumerate(made.addresses):
        name, wire = _name(machine), f"wire{machine}"
        _ip(f"netns add {name}")
        _ip(f"link add {wire} type veth peer name eth0 netns {name}")
        _ip(f"link set {wire} master {_BRIDGE} up")
        _ip(f"-n {name} address add {address}/24 dev eth0")
        for device in ("lo", "eth0"):
            _ip(f"-n {name} link set {device} up")
    try:
        yield made
    finally:
        for machine in range(COUNT):
            _ip(f"netns delete {_name(machine)}")
        _ip(f"link delete {_BRIDGE}")
        subprocess.run(["umount", _NAMES], check=True)


def _name(machine: int) -> str:
    return f"machine{machine}"


def _ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)
