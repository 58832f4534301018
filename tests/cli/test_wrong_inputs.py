"""Wrong inputs: each ends with its exit code and one last line that names what is wrong."""

import os
import socket
from collections.abc import Generator
from pathlib import Path

import pytest

import joulie_forked

DEAD = "127.0.0.1:1"  # nothing listens there
FILES = {
    "broken.toml": "STATIC_HP_FRAC = ",
    "typo.toml": 'STATIC_HP_FRACTION = "0.3"',
    "broken.yaml": "{{{",
    "garbage.key": "no key",
    "report.json": "{",
    "file": "x",
    "other/joulie.db": "no database, " * 500,
}
SERVES = {"METRICS_ADDR": "127.0.0.1:0"}
DSN = f"postgresql://u:secret@{DEAD}/x"
ADDRESSES = ("EXTENDER_ADDR", "CONSOLE_ADDR", "METRICS_ADDR")
CASES = [
    # words, environment, exit code, what the last line names
    ("up --data d --for 1s", dict.fromkeys(ADDRESSES, "TAKEN"), 1, "Nothing can listen on"),
    ("up --data d", {"CONSOLE_ADDR": "nowhere"}, 2, "CONSOLE_ADDR='nowhere'"),
    ("up --kubeconfig none --data d", {}, 1, "KUBECONFIG='none' cannot be used"),
    ("up --kubeconfig broken.yaml --data d", {}, 1, "while parsing a flow node"),
    ("up --data /proc/x", {}, 2, "/proc/x cannot be created"),
    ("status --data file", {}, 2, "is a file, and no data directory"),
    ("decisions --data other", {}, 2, "is not a database of SQLite"),
    ("decisions --data empty", {}, 2, "There is no Joulie data in"),
    ("status --config broken.toml", {}, 2, "broken.toml cannot be read: Invalid value"),
    ("status --config none.toml", {}, 2, "none.toml cannot be read"),
    ("status --config typo.toml", {}, 2, "did you mean STATIC_HP_FRAC?"),
    ("operator --data d", {"STATIC_HP_FRAC": "2"}, 2, "allowed: a number from 0 to 1"),
    ("decisions --data empty --since yesterday", {}, 2, "a time such as 2026-11-21T10:30"),
    ("decisions --data empty --since 2099-01-01", {}, 2, "lies in the future"),
    ("energy --data empty --from x", {}, 2, "'x' is not a time such as"),
    ("archive --data empty", {}, 2, "Give --to DIR, or set ARCHIVE_DIR"),
    ("archive restore --to none --data new", {}, 2, "there is neither facts/ nor log/ in it"),
    ("verify --archive none --key garbage.key --data none", {}, 2, "garbage.key holds another"),
    ("verify --report report.json --data empty", {}, 2, "report.json is not a report"),
    ("projector --data d", {"NATS_CREDS_FILE": "none"}, 2, "NATS_CREDS_FILE='none'"),
    ("projector --data d", {"DATABASE_URL": "mysql://x"}, 2, "DATABASE_URL=(hidden)"),
    ("migrate", {"DATABASE_URL": DSN}, 2, "Is DATABASE_URL right, and is the server up?"),
    ("operator --data empty", {"NATS_URL": f"nats://{DEAD}"}, 2, "There is no Joulie data"),
    ("simulate gpus --trace none.csv", {}, 2, "The trace none.csv cannot be used"),
    ("simulate energy --policies nope", {}, 2, "'nope' is not a policy"),
    ("demo --nodes 0", {}, 2, "a whole number from 1 to 50000"),
    ("demo --for 3", {}, 2, "is not a duration such as"),
    ("plans --evict --kubeconfig none", {}, 2, "--evict carries out --defragment"),
    ("plans --evict --defragment", {}, 2, "Nothing was evicted"),
    ("explan pod", {}, 2, "Similar: explain"),
    ("explain plan --data empty", {}, 2, "`joulie explain plan ID` explains a plan"),
    ("keys rotate --data empty", {}, 2, "head.key is missing"),
]


@pytest.fixture
def taken() -> Generator[str, None, None]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    ("words", "environ", "code", "named"), CASES, ids=[f"{each[0]} {each[1]}" for each in CASES]
)
def test_a_wrong_input_ends_with_a_code_and_a_line_that_names_it(
    words: str, environ: dict[str, str], code: int, named: str, taken: str, tmp_path: Path
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "empty").mkdir()
    told = {name: taken if value == "TAKEN" else value for name, value in environ.items()}

    done = joulie_forked.joulie(
        *words.split(), environ={**os.environ, **SERVES, **told}, where=tmp_path
    )

    last = (done.stderr.strip().splitlines() or [""])[-1]
    assert (done.returncode, named in last) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr


def test_one_file_may_hold_the_settings_of_all_components(tmp_path: Path) -> None:
    (tmp_path / "all.toml").write_text('STATIC_HP_FRAC = "0.3"\nARCHIVE_KEEP = "72h"\n')

    done = joulie_forked.joulie(
        "status", "--config", "all.toml", "--data", "none", environ=dict(os.environ), where=tmp_path
    )

    assert "setting" not in done.stderr
