"""Secrets are planted in every place that can hold one, and searched for in all output."""

import asyncio
import json
import os
import shutil
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from joulie_cli.command_line.commands import commands
from joulie_cli.supervisor.supervisor import free_addresses
from joulie_forked import Command, joulie
from joulie_projections.component.data_directory import DataDirectory

PLANTED = "planted-0f3a9b"  # in every one of them
NOWHERE = "127.0.0.1:9"  # nothing listens there
NO_ANSWER = "No NATS server answers"
NO_CONNECTION = "what=connect"  # a component waits for the database
PATIENCE_S = 120.0  # a slow machine
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "clusters": [{"name": "c", "cluster": {"server": f"https://{NOWHERE}"}}],
    "users": [{"name": "u", "user": {"token": f"{PLANTED}-kube"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
}
EDGES = {
    "ENABLE_FACILITY_METRICS": "true",
    "FACILITY_POLL_INTERVAL": "1s",
    "FACILITY_PROMETHEUS_ADDRESS": f"http://u:{PLANTED}-prom@{NOWHERE}",
    "NODE_POWER_INTERVAL": "1s",
    "NODE_POWER_ADDRESS": f"http://{NOWHERE}/{{node}}?api_key={PLANTED}-http",
}
USER = {"NATS_USER": "joulie", "NATS_PASSWORD": f"{PLANTED}-nats", "NATS_URL": f"nats://{NOWHERE}"}
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQY"  # of an nkey, cut off
MISTAKES = {
    "DATABASE_URL": f"{PLANTED}-db",
    "NATS_PASSWORD": f"{PLANTED}-nats",
    "NATS_CREDS_FILE": SEED,
    "NATS_CA_FILE": f"eyJ{PLANTED}",
}
NO_DATABASE = {
    "its password": USER | {"DATABASE_URL": f"postgresql://u:{PLANTED}-db@{NOWHERE}/joulie"},
    "a parameter": {
        "DATABASE_URL": f"postgresql://{NOWHERE}/joulie?user=u&password={PLANTED}-db",
        "NATS_URL": f"nats://u:{PLANTED}@{NOWHERE}",
    },
    "another kind": {"DATABASE_URL": f"mysql://u:{PLANTED}-db@{NOWHERE}/joulie"},
}
NO_BROKER = {
    "a password": USER,
    "a password in the URL": {"NATS_URL": f"nats://u:{PLANTED}@{NOWHERE}"},
    "a token in the URL": {"NATS_URL": f"nats://{PLANTED}@{NOWHERE},nats://{PLANTED}@{NOWHERE}"},
}
STARTS = ("projector", "operator", "extender", "simulator", "console", "migrate", "status")
AUDITS = ("verify", "replay", "decisions", "keys", "rebuild", "archive")
READERS = ("status", *(command for command in AUDITS if command != "keys"))  # of the database


def environment(**planted: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NATS_")}
    return {**clean, **free_addresses(), **planted}


def begun(command: str, place: Path, **planted: str) -> Command:
    """Started in a directory of its own, with its data in `data`."""
    (place / "kubeconfig").write_text(json.dumps(KUBECONFIG))
    words: list[str | Path] = [command, "--data", place / "data"]
    if command == "operator":
        words += ["--kubeconfig", place / "kubeconfig"]
    elif command == "archive":
        words += ["--dir", place / "archive"]
    return Command(words, environment(**planted), place)


def all_said_by(command: Command) -> str:
    """All that it writes until it ends, or has given up a first time."""
    deadline = time.monotonic() + PATIENCE_S
    tried = (NO_ANSWER, NO_CONNECTION)
    while not command.wait(0.1) and not any(each in command.said() for each in tried):
        assert time.monotonic() < deadline, command.said()
    command.stop()
    return command.said()


def test_every_part_is_started() -> None:
    assert {*STARTS, *AUDITS} <= set(commands())


@pytest.mark.parametrize("command", [*STARTS, *AUDITS])
def test_no_mistake_in_the_settings_shows_a_secret(tmp_path: Path, command: str) -> None:
    said = all_said_by(begun(command, tmp_path, **MISTAKES))

    assert "Nothing was started." in said
    assert PLANTED not in said
    assert SEED not in said


Said = dict[tuple[str, str], str]  # by what was planted, and the command


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Said:
    """What each start says. They run at once: each waits for the broker for ten seconds."""

    def started(command: str, planted: dict[str, str], *, has_database: bool) -> Command:
        place = tmp_path_factory.mktemp(command)
        if has_database:
            data = DataDirectory(place / "data")
            data.create()
            shutil.copyfile(migrated_file, data.database)
        return begun(command, place, **planted)

    without_database = {
        (name, command): started(command, planted, has_database=False)
        for name, planted in NO_DATABASE.items()
        for command in (*STARTS, "verify")
    }
    without_broker = {
        (name, command): started(command, planted, has_database=True)
        for name, planted in NO_BROKER.items()
        for command in STARTS
    }
    return {key: all_said_by(one) for key, one in {**without_database, **without_broker}.items()}


@pytest.mark.parametrize("command", [*STARTS, "verify"])
@pytest.mark.parametrize("planted", NO_DATABASE)
@pytest.mark.long
def test_no_start_without_a_database_shows_a_secret(said: Said, command: str, planted: str) -> None:
    assert said[planted, command] != ""
    assert PLANTED not in said[planted, command]


@pytest.mark.parametrize("command", READERS)
def test_an_unreachable_database_is_one_error_without_a_traceback(
    tmp_path: Path, command: str
) -> None:
    output = all_said_by(begun(command, tmp_path, **NO_DATABASE["its password"]))

    assert f"joulie {command}: No database answers at postgresql" in output
    assert "Traceback" not in output


@pytest.mark.parametrize("command", STARTS)
@pytest.mark.parametrize("planted", NO_BROKER)
@pytest.mark.long
def test_no_start_without_a_broker_shows_a_secret(said: Said, command: str, planted: str) -> None:
    needs_one = command != "status"

    assert (NO_ANSWER in said[planted, command]) == needs_one
    assert PLANTED not in said[planted, command]


def test_no_mistake_in_the_file_of_settings_shows_a_secret(tmp_path: Path) -> None:
    for line in (
        f'NATS_PASSWORD = ["{PLANTED}"]',
        f'NATS_PASSWORT = "{PLANTED}"',
        f'DATABASE_URL = {{ url = "{PLANTED}" }}',
        f'NATS_PASSWORD = "{PLANTED}',
    ):
        (tmp_path / "joulie.toml").write_text(line)
        words = ("status", "--config", tmp_path / "joulie.toml", "--data", tmp_path)
        done = joulie(*words, environ=environment())
        assert (done.returncode, done.stdout) == (2, "")
        assert PLANTED not in done.stderr


# --- while all of it runs -----------------------------------------------------------------------

KEPT_SECRET = ("credentials", "nats.conf", "head.key")  # files that are there to hold one
PAGES = ("debug/scoring", "healthz", "readyz", "openapi.json")


def arguments() -> Iterator[bytes]:
    """The arguments of every process on this machine."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield process.read_bytes()
        except OSError:
            continue


def written(data: Path) -> Iterator[tuple[Path, bytes]]:
    for file in data.rglob("*"):
        if file.is_file() and not set(file.relative_to(data).parts) & {*KEPT_SECRET}:
            yield file, file.read_bytes()


@pytest.mark.anyio
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.long
async def test_nothing_that_runs_shows_a_secret(tmp_path: Path) -> None:
    """Searches arguments, log lines, pages, metrics, database and streams."""
    data, environ = tmp_path / "data", environment(**USER, **EDGES, LOG_LEVEL="debug")
    words = ["demo", "--headless", "--nodes", "8", "--speed", "600", "--data", str(data)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "joulie_cli.main", *words),
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    shown: list[tuple[str, bytes]] = []
    try:
        async with asyncio.timeout(60):
            while not (pages := await asyncio.to_thread(opened, data)):
                await asyncio.sleep(0.5)
        await asyncio.sleep(5)  # the edges have asked, and were not answered
        shown += [("an argument", line) for line in arguments()] + pages
    finally:
        process.terminate()
        said, _ = await asyncio.wait_for(process.communicate(), 60)
    shown += [("what it said", said), *((str(file), bytes_) for file, bytes_ in written(data))]

    lines = b"".join(what for _, what in shown)
    assert b"u:***@127.0.0.1" in lines  # it was on its way out
    assert b"api_key=***" in lines
    passwords = {file.read_bytes() for file in (data / "credentials").iterdir()}
    key = (data / "head.key").read_bytes().splitlines()[1]
    assert len(passwords) > 5
    assert len(shown) > 20
    for secret in {PLANTED.encode(), key, *passwords}:
        assert [where for where, what in shown if secret in what] == []


def opened(data: Path) -> list[tuple[str, bytes]]:
    """The pages of all parts; nothing unless all of them answer."""
    try:
        running = json.loads((data / "run.json").read_text())
        door = running["endpoints"]["extender"]
        pages = [f"{door}/{page}" for page in PAGES]
        groups = json.loads((data / "prometheus.json").read_text())
        pages += [f"http://{at}/metrics" for group in groups for at in group["targets"]]
        return [(page, urllib.request.urlopen(page, timeout=60).read()) for page in pages]
    except (OSError, KeyError, ValueError):
        return []


@pytest.mark.parametrize("command", ["up", "demo", "migrate", "projector"])
def test_a_planted_data_directory_is_refused(command: str, tmp_path: Path) -> None:
    planted = tmp_path / "data"
    planted.mkdir()
    planted.chmod(0o777)
    (planted / "head.key").write_text("known to another user")
    before = sorted(planted.rglob("*"))

    ended = joulie(command, "--data", planted, environ=dict(os.environ))

    assert ended.returncode == 2
    assert f"{planted} is not trusted: others may write to it" in ended.stderr
    assert sorted(path for path in planted.rglob("*") if path.is_file()) == before
