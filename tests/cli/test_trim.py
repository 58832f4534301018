"""Room is given back, end to end: real processes, a real broker, a real file; nothing is missed."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import joulie_demo
import joulie_forked
from joulie_audit.archive.parts import Archive
from joulie_bus.runtime.ports import free_port
from joulie_cli.main import main
from joulie_projections.history.history import NEWEST, History
from s3_server import serving_s3

pytestmark = pytest.mark.long

PATIENCE_S = 120.0
COMMAND = [sys.executable, "-m", "joulie_cli.main"]
Asked = Callable[..., Any]


def grow(data: Path, decisions: int) -> None:
    """A demo adds to the log until it has so many decisions, and can be cut behind them."""
    with joulie_demo.demo(data, "--nodes", "40", PROJECTOR_SNAPSHOT_EVERY="300") as running:
        running.await_decisions(decisions)
        # The head that a process signs as it ends may not be published, nor its snapshot saved.
        entries, position = running.counts().entries, position_in(data)
        running.wait_until(lambda: running.counts().signed_to >= entries)
        running.wait_until(lambda: snapshot_in(data) >= position)
        running.end()


def position_in(data: Path) -> int:
    with History.of(data / "joulie.db") as history:
        found = history.checkpoint()
    return found.position if found else 0


def snapshot_in(data: Path) -> int:
    """The position of the newest snapshot."""
    with History.of(data / "joulie.db") as history:
        found = history.snapshot_before(NEWEST)
    return found.position if found else 0


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory in which a demo ended, and its archive beside it."""
    path = tmp_path_factory.mktemp("trimmed")
    grow(path / "data", 100)
    assert main(["archive", "--now", "--dir", str(path / "a"), "--data", str(path / "data")]) == 0
    return path


@pytest.fixture
def place(lived: Path, tmp_path: Path) -> Path:
    shutil.copytree(lived, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]) -> Asked:
    """The JSON that a command prints; an exit code of 1 or 2 fails."""

    def ask(*words: str | Path, data: Path) -> Any:
        capsys.readouterr()
        code = main([*map(str, words), "-o", "json", "--data", str(data)])
        out, err = capsys.readouterr()
        assert code == 0, (out, err)
        return [without_age(json.loads(line)) for line in out.splitlines()]

    return ask


def without_age(told: Any) -> Any:
    """An answer about the newest state tells its age, which grows."""
    grows = {"age_ms", "behind_ms"} if isinstance(told, dict) and "at_ms" in told else set[str]()
    return {name: told[name] for name in told if name not in grows} if grows else told


def trim(asked: Asked, place: Path) -> dict[str, Any]:
    words = ("archive", "--now", "--trim", "--keep", "1ms", "--dir", place / "a")
    told: dict[str, Any] = asked(*words, data=place / "data")[0]["trimmed"]
    return told


def everything(asked: Asked, place: Path) -> list[Any]:
    """The answers about the first minutes of the log, read through the archive."""
    data, archive = place / "data", ("--archive", place / "a")
    decisions = asked("decisions", "--limit", "100000", *archive, data=data)[0]["items"]
    pods = list(dict.fromkeys(f"{row['namespace']}/{row['name']}" for row in decisions))[:3]
    nodes = [asked("twin", node(data), "--at", str(at), *archive, data=data) for at in (60, 150)]
    return [
        decisions,
        [asked("explain", pod, *archive, data=data) for pod in pods],
        nodes,
        asked("plans", "--all", *archive, data=data),
        [_proof(entry, place) for entry in (1, 7)],
    ]


def _proof(entry: int, place: Path) -> str:
    words = ("prove", str(entry), "--archive", place / "a", "--data", place / "data")
    done = joulie_forked.joulie(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def node(data: Path) -> str:
    with closing(sqlite3.connect(data / "joulie.db")) as db:
        (key,) = db.execute("SELECT min(key) FROM node_twin").fetchone()
    return str(key)


def is_whole(asked: Asked, place: Path) -> None:
    data, archive = place / "data", ("--archive", place / "a")
    seen = asked("verify", *archive, data=data)[0]
    assert "first_bad" not in seen
    assert seen["archive"]["flaw"] is None
    again = asked("replay", *archive, data=data)[0]
    assert (again["mismatches"], again["decisions"] > 0) == (0, True)


def test_a_trimmed_log_with_its_archive_gives_the_same_answers(asked: Asked, place: Path) -> None:
    before, size = everything(asked, place), (place / "data" / "joulie.db").stat().st_size

    done = trim(asked, place)

    assert done["cut"]["entry"] > 1
    assert {"JOULIE_TEL", "JOULIE_OBS", "JOULIE_DEC"} <= done["messages"].keys()
    assert (place / "data" / "joulie.db").stat().st_size <= size - done["freed"] < size
    assert everything(asked, place) == before
    is_whole(asked, place)

    grow(place / "data", 200)  # the streams, the chain and the numbers go on
    again = trim(asked, place)

    assert again["cut"]["entry"] > done["cut"]["entry"]
    assert asked("twin", node(place / "data"), data=place / "data")
    is_whole(asked, place)
    assert asked("rebuild", "--archive", place / "a", data=place / "data")[0]["differs_at"] == 0
    is_whole(asked, place)


def test_without_the_archive_the_commands_name_it(
    asked: Asked, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done, data = trim(asked, place), place / "data"

    seen = asked("verify", data=data)[0]

    last = done["cut"]["entry"] - 1
    assert seen["unseen"] == {"entries": [1, last], "positions": [1, done["cut"]["position"]]}
    for words in (
        ["replay"],
        ["prove", "1"],
        ["rebuild", "--whole"],
        ["twin", node(data), "--at", "60"],
    ):
        assert main([*words, "--data", str(data)]) == 2
        assert "--archive DIR" in capsys.readouterr().err
    assert main(["rebuild", "--data", str(data)]) == 0
    assert main(["verify", "--data", str(data)]) == 0
    assert f"NOT checked: entries 1 to {last}" in capsys.readouterr().out


@pytest.mark.parametrize("pause_s", [0.01])
def test_a_trim_that_is_killed_leaves_a_whole_log_and_is_finished_by_the_next(
    asked: Asked, place: Path, pause_s: float
) -> None:
    before = everything(asked, place)
    words = ["archive", "--now", "--trim", "--keep", "1ms", "--dir", place / "a"]
    running = subprocess.Popen(
        [*COMMAND, *map(str, words), "--data", str(place / "data")], stdout=subprocess.DEVNULL
    )
    with closing(sqlite3.connect(place / "data" / "joulie.db")) as db:
        until(lambda: db.execute("SELECT count(*) FROM cut").fetchone() != (0,), running)
    time.sleep(pause_s)  # another step each time, on most machines
    running.kill()
    assert running.wait() in (0, -signal.SIGKILL)
    # Its broker dies after it: it notices that the lease is free.

    assert everything(asked, place) == before
    is_whole(asked, place)
    assert trim(asked, place)["cut"] is not None
    assert everything(asked, place) == before
    is_whole(asked, place)


def until(is_so: Callable[[], bool], running: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end
        assert running.poll() is None or is_so()


def test_the_archiver_trims_after_each_pass(place: Path) -> None:
    """As beside `joulie up` with ARCHIVE_DIR, and with a shorter window."""
    environ = {**os.environ, "ARCHIVE_DIR": str(place / "a"), "ARCHIVE_KEEP": "1ms"}
    environ["METRICS_ADDR"] = f"127.0.0.1:{free_port()}"
    words = ["archive", "--every", "1h", "--now", "--data", str(place / "data")]
    running = subprocess.Popen([*COMMAND, *words], env=environ, stdout=subprocess.DEVNULL)
    with closing(sqlite3.connect(place / "data" / "joulie.db")) as db:
        until(lambda: db.execute("SELECT count(*) FROM cut").fetchone() == (1,), running)
        gone = "SELECT min(pos) FROM decision WHERE kind = 'decision.filter'"
        until(lambda: db.execute(gone).fetchone() != (2,), running)
    running.terminate()

    assert running.wait(PATIENCE_S) == 0


def test_an_archiver_that_keeps_everything_trims_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARCHIVE_KEEP", "never")
    words = ["archive", "--now", "--dir", str(place / "a"), "--data", str(place / "data")]

    assert main(words) == 0
    assert main([*words, "--trim"]) == 2
    assert "ARCHIVE_KEEP is never" in capsys.readouterr().err


def test_nothing_is_trimmed_before_its_copy_is_in_the_bucket(
    asked: Asked,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = ("--data", str(place / "data"))
    words = ["archive", "--now", "--trim", "--keep", "1ms", "--dir", str(place / "a"), *data]
    monkeypatch.setenv("ARCHIVE_BUCKET", f"http://127.0.0.1:{free_port()}/archive/none")

    assert main(words) == 2
    assert "cannot be used: [Errno 111]" in capsys.readouterr().err
    with closing(sqlite3.connect(place / "data" / "joulie.db")) as db:
        assert db.execute("SELECT count(*) FROM cut").fetchone() == (0,)

    shutil.rmtree(place / "a" / "log")
    assert main(words) == 2
    assert Archive(place / "a").log, "parts are written, although the bucket fails"
    assert main([*words, "--dir", str(tmp_path / "lost")]) == 2
    assert not Archive(tmp_path / "lost").facts, "another archive than in the bucket would begin"

    with serving_s3(tmp_path) as server:
        for name, value in server.environ(tmp_path).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("ARCHIVE_BUCKET", f"{server.url}/cluster-a")
        assert main(words) == 0
        assert main(["archive", "fetch", "--dir", str(tmp_path / "fetched"), *data]) == 0

    with closing(sqlite3.connect(place / "data" / "joulie.db")) as db:
        assert db.execute("SELECT count(*) FROM cut").fetchone() == (1,)
    shutil.rmtree(place / "a")
    (tmp_path / "fetched").rename(place / "a")
    is_whole(asked, place)


def test_a_fetch_without_a_bucket_names_the_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["archive", "fetch", "--dir", str(tmp_path / "a"), "--data", str(tmp_path / "data")]

    assert main(words) == 2
    assert "Set ARCHIVE_BUCKET" in capsys.readouterr().err
