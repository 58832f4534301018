"""What a command that asks a console imports: less than one that reads the database."""

import subprocess
import sys
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import msgspec
import pytest

from joulie_answers.schema.responses import Readings, Status

MOST = 350  # 324 with Python 3.11, of which 70 are Joulie's; 1053 with SQLAlchemy and aiohttp
LIBRARIES = {"aiohttp", "nats", "numpy", "prometheus_client", "rich", "sqlalchemy"}
RUN = """
import sys
from joulie_cli.main import main
code = main(sys.argv[1:])
print(code, *sys.modules, file=sys.stderr)
"""
STATUS = Status(
    position=7,
    at_ms=1,
    age_ms=0,
    behind_ms=0,
    running=True,
    elsewhere=None,
    epoch=1,
    committed_at=None,
    commit_age_s=1.0,
    preset=None,
    decisions=3,
    entries=4,
    signed_to=2,
    quarantined=0,
    readings=Readings(nodes=5, asleep=0, fresh=5, oldest_s=1.0),
    ledger_behind_s=0.0,
    refused_on_sample=[],
)


class Console(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = msgspec.json.encode(STATUS)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def console() -> Generator[str, None, None]:
    with HTTPServer(("127.0.0.1", 0), Console) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def imported_by(*words: str | Path) -> set[str]:
    command = [sys.executable, "-c", RUN, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    code, *modules = done.stderr.splitlines()[-1].split()
    assert code in ("0", "2"), done.stderr
    return {*modules}


def test_a_status_by_http_imports_neither_a_database_nor_a_broker_nor_a_heavy_client(
    console: str, tmp_path: Path
) -> None:
    by_http = imported_by("status", "--server", console)
    by_database = imported_by("status", "--data", tmp_path / "none")

    assert len(by_http) < min(MOST, len(by_database))
    assert by_http & LIBRARIES == set()
    assert "joulie_cli.asking.local_data" not in by_http


@pytest.mark.parametrize("words", [("gpus",), ("decisions",), ("plans",), ("energy",), ("report",)])
def test_a_question_to_a_console_imports_no_database(words: tuple[str, ...]) -> None:
    modules = imported_by(*words, "--server", "http://127.0.0.1:1")

    assert modules & LIBRARIES == set()


def test_a_report_of_a_console_is_shown_without_what_computes_one() -> None:
    shown = "joulie_answers.report.page, joulie_answers.report.words"
    code = f"import sys, {shown}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert {*done.stdout.split()} & LIBRARIES == set()
