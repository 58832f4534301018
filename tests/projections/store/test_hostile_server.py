"""A program at the address of the database that answers as no PostgreSQL server does: each call
ends in time with one line, holds a bounded size, and shows no password; a component waits.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from hostile_postgres import (
    AT_THE_START,
    LATER,
    SECRET,
    Answer,
    error_with_the_password,
    hostile_postgres,
)
from joulie_bus.core import redaction
from joulie_bus.errors import DatabaseUnreachable
from joulie_projections.store import bounded_connection, database, postgres

MOST_S = 30.0  # on a busy machine; what is not bounded does not end at all
MOST_MIB = 256


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a test can wait for."""
    monkeypatch.setattr(postgres, "CONNECT_S", 2)
    monkeypatch.setattr(postgres, "ANSWER_S", 1.0)
    monkeypatch.setattr(bounded_connection, "MOST_BYTES", 64 << 20)


@pytest.fixture
def forgets() -> Generator[None]:
    yield
    redaction._secrets.clear()


@pytest.mark.parametrize("answer", [*AT_THE_START, *LATER], ids=lambda answer: answer.__name__)
def test_a_statement_ends_in_time_and_holds_a_bounded_size(answer: Answer) -> None:
    before = peak_mib()
    with hostile_postgres(answer) as server:
        engine, began = database.reader(server.url), time.monotonic()
        with pytest.raises(OperationalError), engine.connect() as db:
            db.execute(text("SELECT 1")).fetchall()
        took_s = time.monotonic() - began
        assert server.connections > 0
    assert took_s < MOST_S
    assert peak_mib() - before < MOST_MIB


@pytest.mark.usefixtures("forgets")
@pytest.mark.parametrize("answer", [*AT_THE_START, *LATER], ids=lambda answer: answer.__name__)
def test_the_error_is_one_short_line_without_the_password(answer: Answer) -> None:
    with hostile_postgres(answer) as server:
        redaction.remember(server.url)  # as the settings do
        with pytest.raises(DatabaseUnreachable) as raised:
            database.require_reachable(database.reader(server.url))
    assert str(raised.value).startswith("No database answers at postgresql")
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 1000
    assert SECRET not in str(raised.value)


@pytest.mark.long
def test_a_component_waits_and_says_so(tmp_path: Path) -> None:
    with hostile_postgres(error_with_the_password) as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "joulie_cli.main", "ledger", "--data", str(tmp_path)],
            env={**os.environ, "DATABASE_URL": server.url},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if "refused" in line)
            while server.connections < 5:
                time.sleep(0.05)
            assert process.poll() is None
        finally:
            process.kill()
            rest = process.communicate()[0]
    assert "(hidden)" in line
    assert SECRET not in line + rest
    assert "\x1b" not in line + rest
    assert "Traceback" not in line + rest


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
