"""Wrong inputs: each ends with its exit code and one last line of the same kind.

The line begins with the command, names what is wrong, and says what was done and what to do.
"""

import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Generator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import joulie_forked
from joulie_projections.chain.note import LOG_KEY, VerifierKey

DEAD = "127.0.0.1:1"  # nothing listens there
KUBECONFIG = f"""
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "https://{DEAD}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""
FILES = {
    "broken.toml": "STATIC_HP_FRAC = ",
    "typo.toml": 'STATIC_HP_FRACTION = "0.3"',
    "broken.yaml": "{{{",
    "cluster.yaml": KUBECONFIG,
    "garbage.key": "no key",
    "report.json": "{",
    "file": "x",
    "head.json": "{}",
    "pods.csv": "name,cpu\n",
    "other/joulie.db": "no database, " * 500,
}
SERVES = {"METRICS_ADDR": "127.0.0.1:0"}
DSN = f"postgresql://u:secret@{DEAD}/x"
ADDRESSES = ("EXTENDER_ADDR", "CONSOLE_ADDR", "METRICS_ADDR")
KEY = str(VerifierKey("log", LOG_KEY, bytes(32)))
WEB = "http://WEB"  # a server that is no console

# Words, exit code, what the last line names. DATA is the directory of a recorded log.
COMMAND_LINE: list[tuple[str, int, str]] = [
    ("explan pod", 2, "Similar: explain"),
    ("explain", 2, "arguments are required: POD"),
    ("explain a b c --data empty", 2, "Give a pod"),
    ("explain plan --data empty", 2, "`joulie explain plan ID` explains a plan"),
    ("twin", 2, "arguments are required: NODE"),
    ("twin n1 --hisotry", 2, "no option --hisotry. Similar: --history"),
    ("twin n1 n2", 2, "'n2' is one argument too many"),
    ("status --json", 2, "no option --json. Similar: -o json"),
    ("try --from kubeconfig --last 7d", 2, "--last: not with --from kubeconfig"),
    ("try --context production", 2, "--context: only with --from kubeconfig"),
    ("try --last 7x", 2, "'7x' is not"),
    ("try --data DATA --seeds 21", 2, "--seeds 21: at most 20"),
    ("energy --by nod", 2, "'nod' is not one of namespace, workload, node"),
    ("energy -o jsno", 2, "(did you mean json?)"),
    ("energy --server", 2, "argument --server: expected one argument"),
    ("decisions --limit 0", 2, "'0' is not a whole number above 0"),
    ("decisions --limit ten", 2, "'ten' is not a whole number above 0"),
    ("decisions --kind bnd", 2, "did you mean bind?"),
    ("replay --from 5", 2, "no option --from. Similar: --from-position"),
    ("replay --from-position 9 --to-position 5 --data DATA", 2, "--from-position 9 is after"),
    ("replay --from-position 99999999 --data DATA", 2, "There is no position 99999999"),
    ("verify --from-entry 99999999 --heads none --data DATA", 2, "There is no entry 99999999"),
    ("prove 99999999 --data DATA", 2, "There is no entry 99999999"),
    ("prove first", 2, "'first' is not a whole number above 0"),
    ("diff 1 99999999 --data DATA", 2, "No head was signed at entry"),
    ("diff none.json 1 --data DATA", 2, "none.json"),
    ("twin n1 --at 99999999 --data DATA", 2, "There is no position 99999999"),
    ("twin n1 --at noon --data DATA", 2, "'noon' is not a position"),
    ("decisions --since yesterday --data empty", 2, "a time such as 2026-11-21T10:30"),
    ("decisions --since 2099-01-01 --data empty", 2, "lies in the future"),
    ("energy --from x --data empty", 2, "'x' is not a time such as"),
    ("energy --from 2026-02-01 --to 2026-01-01 --data DATA", 2, "--from 2026-02-01 is not before"),
    ("energy --from 2099-01-01 --data DATA", 2, "--from 2099-01-01 lies in the future"),
    ("report --from 2026-02-01 --to 2026-01-01 --data DATA", 2, "--from 2026-02-01 is not before"),
    ("caps --from 2026-02-01 --to 2026-01-01 --data DATA", 2, "--from 2026-02-01 is not before"),
    ("sql COMMIT --data DATA", 2, "It is not one SELECT"),
    ("sql SELEC --data DATA", 2, "The query was not run"),
    ("sql FROM_nothing --data DATA --rows 0", 2, "'0' is not a whole number above 0"),
    ("whatif --data DATA", 2, "no change is given"),
    ("whatif --set scoring --data DATA", 2, "write it as NAME=VALUE"),
    ("whatif --set scoring=nope --data DATA", 2, "scoring='nope'"),
    ("whatif --policy nosuch --data DATA", 2, "POLICY_TYPE='nosuch'"),
    ("target set --watts much --to +1h", 2, "'much' is not a power"),
    ("target set --watts -5 --to +1h", 2, "'-5' is not a power"),
    ("target set evening --data empty", 2, "needs --watts and --to"),
    ("target set --watts 5 --to soon --data empty", 2, "'soon' is not a time"),
    ("demo --nodes 0", 2, "a whole number from 1 to 50000"),
    ("demo --speed fast", 2, "--speed='fast'"),
    ("demo --for 3", 2, "is not a duration such as"),
    ("demo --for 5s --compare", 2, "not allowed with argument"),
    ("simulate", 2, "arguments are required: what"),
    ("simulate gpus --nodes x", 2, "'x' is not a whole number above 0"),
    ("simulate gpus --seeds 0", 2, "'0' is not a whole number above 0"),
    ("simulate energy --hours -1", 2, "'-1' is not a number above 0"),
    ("simulate energy --policies nope", 2, "'nope' is not a policy"),
    ("simulate energy --loads huge", 2, "'huge' is not a load"),
    ("plans --next soon", 2, "'soon' is not a duration"),
    ("plans --evict --kubeconfig none", 2, "--evict carries out --defragment"),
    ("plans --evict --defragment", 2, "Nothing was evicted"),
    ("keys rotat", 2, "did you mean rotate?"),
    ("keys retire --data DATA", 2, "A key and a time are required"),
    ("keys retire 1 --compromised-since x --data DATA", 2, "'x' is not an entry's number"),
    ("keys rotate --data empty", 2, "head.key is missing"),
    ("grant nobody", 2, "'nobody' is not one of"),
    ("grant projector p1", 2, "'p1' is the name of no projector"),
    ("dead show first", 2, "'first' is not a whole number above 0"),
    ("dead show 7 --data DATA", 2, "No message is in quarantine at position 7"),
    ("dead show --data DATA", 2, "No position is given"),
    ("migrate --from-url x", 2, "takes both --from-url URL and --to-url URL"),
    ("archive wrote", 2, "did you mean write?"),
    ("archive --every 0s", 2, "is not a duration longer than nothing"),
    ("completion tcsh", 2, "'tcsh' is not one of"),
    ("release", 2, "name one with --kubeconfig"),
    ("witness", 2, "arguments are required: --state"),
    ("witness --state state --name w1", 2, "no log is named"),
    ("witness key --state state --name w1+x", 2, "w1+x"),
    ("agent --once --nod x", 2, "no option --nod. Similar: --node"),
]
FILES_AND_DIRECTORIES: list[tuple[str, int, str]] = [
    ("up --kubeconfig none --data d", 1, "KUBECONFIG='none' cannot be used"),
    ("up --kubeconfig broken.yaml --data d", 1, "broken.yaml"),
    ("up --data /proc/x", 2, "/proc/x cannot be created"),
    ("up --data d --for 1s --report /nope/x", 2, "--report=/nope/x"),
    ("status --data file", 2, "is a file, and no data directory"),
    ("decisions --data other", 2, "is not a database of SQLite"),
    ("decisions --data empty", 2, "There is no Joulie data in"),
    ("decisions --data none", 2, "There is no Joulie data in"),
    ("status --config broken.toml", 2, "broken.toml cannot be read: Invalid value"),
    ("status --config none.toml", 2, "none.toml cannot be read"),
    ("status --config other", 2, "other cannot be read"),
    ("status --config typo.toml", 2, "did you mean STATIC_HP_FRAC?"),
    ("archive --data empty", 2, "Give --dir DIR, or set ARCHIVE_DIR"),
    ("archive --dir file/x --data DATA", 2, "file/x"),
    ("archive restore --dir none --data new", 2, "there is neither facts/ nor log/ in it"),
    ("restore --dir none --data new", 2, "there is neither facts/ nor log/ in it"),
    ("restore --dir none --data new --at 2099-01-01", 2, "is in the future"),
    ("backup --dir /proc/x --data DATA", 2, "/proc/x"),
    ("backup --dir b --data none", 2, "There is no Joulie data in"),
    ("report --out /nope/x --data DATA", 2, "--out=/nope/x"),
    ("report --out other --data DATA", 2, "--out=other"),
    ("report --out x.html -o json --data DATA", 2, "--out=x.html"),
    ("whatif --set scoring=headroom --plot /nope/x --data DATA", 2, "--plot=/nope/x"),
    ("simulate energy --quick --plot /nope/x", 2, "--plot=/nope/x"),
    ("sql SELECT(1)FROM/readings --archive /nope --data none", 2, "The query was not run"),
    ("verify --archive /nope --data none", 2, "/nope is not what was archived"),
    ("replay --archive /nope --data DATA", 2, "there is neither facts/ nor log/ in it"),
    ("verify --key garbage.key --heads none --data DATA", 2, "garbage.key holds another"),
    ("verify --key none.key --data DATA --heads none", 2, "none.key"),
    ("verify --heads none.json --data DATA", 2, "none.json"),
    ("verify --report report.json --data empty", 2, "report.json is not a report"),
    ("verify --report none.json --data empty", 2, "none.json"),
    ("simulate gpus --trace none.csv", 2, "none.csv cannot be used"),
    ("simulate gpus --trace pods.csv", 2, "pods.csv cannot be used"),
    ("simulate gpus --cluster none.csv", 2, "none.csv cannot be used"),
    ("demo --trace none.csv", 2, "none.csv"),
    ("agent --once --host-root none", 2, "--host-root"),
    ("caps release --limits file", 2, "--limits file"),
    ("doctor --certificates none --data DATA", 2, "--certificates=none"),
    ("witness --state file/x --name w1 --log x", 2, "file/x"),
    ("witness --state state --name w1 --log garbage", 2, "--log 'garbage'"),
]
SERVERS: list[tuple[str, int, str]] = [
    (f"status --server http://{DEAD}", 2, f"No console answers at http://{DEAD}: Connection"),
    (f"status --server https://{DEAD}", 2, f"No console answers at https://{DEAD}: Connection"),
    ("status --server nowhere", 2, "its URL is not https://HOST or http://HOST"),
    ("status --server ftp://x", 2, "its URL is not https://HOST or http://HOST"),
    ("status --server http://no-such-host.invalid", 2, "No console answers at http://no-such-host"),
    (f"status --server {WEB}", 2, "404"),
    (f"energy --server {WEB}/", 2, "404"),
    (f"decisions --server {WEB}/text", 2, "is not what a console of this version answers"),
    (f"explain x --server {WEB}/moved", 2, "redirects are not followed"),
    ("status --server https://WEB", 2, "No console answers at https://"),
    (f"status --server {WEB} --token-file none", 2, "none: No such file"),
    (f"status --server {WEB} --token-file other", 2, "other: Is a directory"),
    (f"status --server {WEB} --ca-file none", 2, "none holds no certificates"),
    ("scheduler-config --url nowhere", 2, "nowhere"),
    ("plans --defragment --kubeconfig none --data DATA", 2, "none"),
    ("release --kubeconfig none", 2, "none"),
    ("admission --kubeconfig cluster.yaml --cert none --key none", 2, "none"),
    ("admission --kubeconfig cluster.yaml --cert x --key x --listen nowhere", 2, "--listen"),
]
# Words, environment, exit code, what the last line names.
ENVIRONMENT: list[tuple[str, dict[str, str], int, str]] = [
    ("up --data d --for 1s", dict.fromkeys(ADDRESSES, "TAKEN"), 1, "Nothing can listen on"),
    ("up --data d", {"CONSOLE_ADDR": "nowhere"}, 2, "CONSOLE_ADDR='nowhere'"),
    ("demo --data d --for 1s", {"CONSOLE_ADDR": "TAKEN"}, 1, "Nothing can listen on"),
    ("witness --state s --name w1 --log KEY --listen TAKEN", {}, 1, "Nothing can listen on"),
    ("operator --data d", {"STATIC_HP_FRAC": "2"}, 2, "allowed: a number from 0 to 1"),
    ("operator --data d", {"POLICY_TYPE": "sleepy"}, 2, "POLICY_TYPE='sleepy'"),
    ("operator --data d", {"POLICY_NUMBERS": "slep_after_s=3"}, 2, "slep_after_s"),
    ("operator --data empty", {"NATS_URL": f"nats://{DEAD}"}, 2, "There is no Joulie data"),
    ("operator --data d", {"PRESET": "saving"}, 2, "PRESET='saving'"),
    ("status --data d", {"LOG_LEVEL": "loud"}, 2, "LOG_LEVEL='loud'"),
    ("operator --data d", {"NATS_URL": "nowhere", "PRESET": "x"}, 2, "PRESET='x'"),
    ("projector --data d", {"NATS_CREDS_FILE": "none"}, 2, "NATS_CREDS_FILE='none'"),
    ("projector --data d", {"DATABASE_URL": "mysql://x"}, 2, "DATABASE_URL=(hidden)"),
    ("projector --data DATA", {"NATS_URL": f"nats://{DEAD}"}, 2, "No NATS server answers at"),
    ("extender --data empty", {"NATS_URL": f"nats://{DEAD}"}, 2, "There is no Joulie data"),
    ("migrate", {"DATABASE_URL": DSN}, 2, "Is DATABASE_URL right, and is the server up?"),
    ("status", {"DATABASE_URL": DSN}, 2, "Is DATABASE_URL right, and is the server up?"),
    ("target clear x --data empty", {"NATS_URL": f"nats://{DEAD}"}, 2, "No NATS server answers"),
    ("up --data d", {"JOULIE_KEYS": "/proc/x"}, 2, "/proc/x cannot be created"),
    ("archive --data DATA", {"ARCHIVE_DIR": "/proc/x"}, 2, "/proc/x"),
]
CASES = [
    *((words, dict[str, str](), code, named) for words, code, named in COMMAND_LINE),
    *((words, dict[str, str](), code, named) for words, code, named in FILES_AND_DIRECTORIES),
    *((words, dict[str, str](), code, named) for words, code, named in SERVERS),
    *ENVIRONMENT,
]
PLACES = re.compile(r"\b(TAKEN|WEB|DATA|KEY)\b")
Run = Callable[[str, Mapping[str, str]], subprocess.CompletedProcess[str]]
BEGINS = re.compile(r"^joulie(?: [a-z-]+)?: ")
DONE = re.compile(r"\b[Nn]othing\b|Known (are|were) ")
TO_DO = re.compile(
    r"`[^`]+`|--[a-z-]+|[A-Z_]{4,}=|allowed: |such as |has 1 to |Near it are |did you mean "
    r"|there are |\b(Give|Choose|Name|Write|Copy|Stop|Make|Is) "
)
OF_PYTHON = re.compile(r"Traceback| object at 0x|\[Errno|HostPort\(|Error\(|invalid \w+ value")


class NoConsole(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.path.startswith("/text")
        moved = self.path.startswith("/moved")
        self.send_response(200 if found else 302 if moved else 404)
        if moved:
            self.send_header("Location", "/")
        self.end_headers()
        if found:
            self.wfile.write(b"<html>hello</html>")

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def web() -> Generator[str, None, None]:
    with ThreadingHTTPServer(("127.0.0.1", 0), NoConsole) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def taken() -> Generator[str, None, None]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.fixture
def run(taken: str, web: str, place: Path, request: pytest.FixtureRequest) -> Run:
    places = {"TAKEN": taken, "WEB": web, "KEY": KEY}

    def run_in_place(words: str, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        if "DATA" in words.split():
            places["DATA"] = str(request.getfixturevalue("golden").data)
        given = {name: PLACES.sub(of_places, value) for name, value in environ.items()}
        return joulie_forked.joulie(
            *(PLACES.sub(of_places, word) for word in words.split()),
            environ={**os.environ, **SERVES, **given},
            where=place,
        )

    def of_places(found: re.Match[str]) -> str:
        return places[found[0]]

    return run_in_place


def test_the_list_is_long_and_has_each_input_once() -> None:
    assert len(CASES) >= 60
    assert len({f"{words} {environ}" for words, environ, _, _ in CASES}) == len(CASES)


@pytest.mark.parametrize(
    ("words", "environ", "code", "named"), CASES, ids=[f"{each[0]} {each[1]}" for each in CASES]
)
def test_a_wrong_input_ends_with_a_code_and_a_line_that_names_it(
    words: str, environ: dict[str, str], code: int, named: str, run: Run
) -> None:
    done = run(words, environ)

    last = (done.stderr.strip().splitlines() or [""])[-1]
    assert (done.returncode, named in last) == (code, True), done.stderr
    assert BEGINS.search(last), last
    assert DONE.search(last), last
    assert TO_DO.search(last), last
    assert last[-1] in ".?)", last
    assert not OF_PYTHON.search(done.stderr), done.stderr
    assert "secret" not in done.stderr


def test_one_file_may_hold_the_settings_of_all_components(tmp_path: Path) -> None:
    (tmp_path / "all.toml").write_text('STATIC_HP_FRAC = "0.3"\nARCHIVE_KEEP = "72h"\n')

    done = joulie_forked.joulie(
        "status", "--config", "all.toml", "--data", "none", environ=dict(os.environ), where=tmp_path
    )

    assert "setting" not in done.stderr
